// Replay: a captured step, ready to be run again without the caller's tracing.
//
// The recorded computations are a program of the cluster (one message per host and run). Its arguments are read from
// the cells of the caller's buffers at the time of the run, and what replaces state is put into the cells again: the
// caller's tensors keep their handles and never notice. State stays at the workers meanwhile (resident.h). Like
// Execute, a run waits for nothing; while a gang on its devices is incomplete its values are pending, and nothing is
// resident.
//
// Ownership: keeps the program registered and its constants alive; cells only weakly (their handles are the caller's).
// Threads:   calls on one replay must not overlap. Locks: those of the cells.
#ifndef PTPATHWAYS_PLUGIN_REPLAY_H_
#define PTPATHWAYS_PLUGIN_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/plugin/buffer.h"
#include "csrc/plugin/resident.h"
#include "csrc/plugin/value.h"

namespace pathways::plugin {

// Where an argument of the program comes from.
struct ReplayInput {
  enum class Kind { kState, kConstant, kFeed } kind = Kind::kState;
  size_t index = 0;                              // of a state or a feed
  std::vector<std::shared_ptr<Value>> constant;  // by shard
  bool may_donate = false;                       // if nobody else holds its value
};

// Where a result of the program goes: into states, to the caller, or both.
struct ReplayOutput {
  std::vector<size_t> states;
  bool returned = false;
};

// What a run is given: values that exist, by shard, or bytes to upload: the same to every shard, or each shard's own.
struct ReplayFeed {
  std::vector<std::shared_ptr<Value>> values;
  std::vector<std::span<const std::byte>> bytes;
};

class Replay {
 public:
  // `client`: whose values these are. Inputs and outputs are parallel to the program's.
  static Result<std::shared_ptr<Replay>> Create(std::shared_ptr<ClientState> client,
                                                std::shared_ptr<client::Program> program,
                                                std::vector<ReplayInput> inputs, std::vector<ReplayOutput> outputs,
                                                size_t states, size_t feeds);

  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // State `index` lies in `cells`, by shard, from now on.
  Status Bind(size_t index, std::span<const std::shared_ptr<BufferCell>> cells);

  // Submits a run and puts the new values into the states. Gives the values that are returned, by output and shard.
  // FAILED_PRECONDITION, with nothing changed: a state's buffer is gone; bind it anew.
  Result<std::vector<std::shared_ptr<Value>>> Run(std::span<const ReplayFeed> feeds);

 private:
  struct Port {
    std::vector<PJRT_Device*> devices;
    ArrayTypePtr type;
    size_t first = 0;  // of its shards, among those of all ports
  };
  // The shards of all ports, one after the other: there may be thousands of ports, nearly all of one shard.
  using Values = std::vector<std::shared_ptr<Value>>;
  using Ports = std::vector<Port>;
  using Row = std::span<const std::shared_ptr<Value>>;  // the shards of one port

  Replay() = default;
  // Which states and constants have a place, and which arguments and results not.
  void MakePlaces(size_t states);
  Result<std::vector<std::shared_ptr<Value>>> RunResident(std::span<const ReplayFeed> feeds);
  Result<std::vector<std::shared_ptr<Value>>> RunHeld(std::span<const ReplayFeed> feeds);
  static Row RowOf(const Values& values, const Port& port) {
    return Row(values).subspan(port.first, port.devices.size());
  }
  // The shards of argument `position`, which begin at `first`.
  Row RowOf(const Values& values, size_t first, size_t position) const {
    return Row(values).subspan(first, (*input_ports_)[position].devices.size());
  }
  void Put(size_t result, Row row, Values& returned) const;
  // Whether a run may be given the argument's memory. `fed`: values that the caller passes.
  bool MayGive(size_t position, Row row, const std::set<const Value*>& fed) const;
  // Appends the values of an argument.
  Status Gather(size_t position, std::span<const ReplayFeed> feeds, Values& values) const;
  Status Check(size_t position, Row row) const;
  std::vector<uint32_t> Donated(const Values& values) const;
  static Result<client::RunResult> Launch(const ClientState& client, const std::shared_ptr<client::Program>& program,
                                          const Ports& ports, const Values& values, std::vector<uint32_t> donated);

  std::shared_ptr<ClientState> client_;
  std::shared_ptr<client::Program> program_;
  std::vector<ReplayInput> inputs_;
  std::vector<ReplayOutput> outputs_;
  std::shared_ptr<Ports> input_ports_ = std::make_shared<Ports>();  // constant once created
  std::shared_ptr<Ports> output_ports_ = std::make_shared<Ports>();
  std::vector<uint32_t> device_ids_;                           // of all that take part
  std::vector<std::vector<std::weak_ptr<BufferCell>>> cells_;  // by state and shard
  size_t feeds_ = 0;
  std::shared_ptr<Residents> residents_;
  std::vector<size_t> place_of_;         // by state, or Residents::kNowhere
  std::vector<size_t> named_arguments_;  // those without a place
  std::vector<size_t> named_results_;
};

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_REPLAY_H_
