// Computation: what a function was compiled to on this host. It knows how to start its shards here, which is one of
//   portable   one executable for one device, whichever a launch names
//   gang       one executable over several devices of this host, whose parts may meet in collectives
//   shards     no part meets another: each shard on its own, which costs a tenth of a gang's launch, and lets the other
//              shards be on other hosts
//   spanning   shards that meet those of other hosts in collectives that this process serves: each on its own, with its
//              number as one argument more (hlo/serve_collectives.h)
//
// Ownership: shared by the functions that hold it; owns or shares its executables. Threads: Launch from one thread at a
// time; the rest is constant.
#ifndef PTPATHWAYS_WORKER_COMPUTATION_H_
#define PTPATHWAYS_WORKER_COMPUTATION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/collective/gang.h"
#include "csrc/pjrt/executable.h"

namespace pathways::worker {

// What the plugins of all hosts tell launches apart by. A launch's place in the cluster's order is of all clients, so
// the numbers are different for launches of up to a million nodes each that are less than 2,000 places apart, whoever
// asked for them; never 0, which means none.
int32_t LaunchNumber(const collective::LaunchId& launch);

class Computation {
 public:
  using Executable = std::shared_ptr<const pjrt::Executable>;

  static Computation Portable(Executable executable);
  // `devices`: index of each shard's device, as in pjrt::Client::devices(), in the order of Launch's rows. INTERNAL
  // when the executable runs on others.
  static Result<Computation> Gang(Executable executable, std::span<const int> devices);
  // `executables`: portable, one per shard, or one for all.
  // `output_sharding`: of the module that was partitioned.
  static Computation Shards(std::vector<Executable> executables, std::vector<int> devices, std::string output_sharding);
  static Computation Spanning(std::vector<Executable> executables, std::vector<int> devices,
                              std::string output_sharding);

  // Enqueues every shard of this host: row i of `rows` holds the arguments of its i-th shard here, and
  // outputs->buffers[i] and outputs->done[i] are what comes of it. `device`: index of the device of a portable
  // computation, otherwise ignored. `tickets`: for a spanning computation, each shard's number. On an error nothing in
  // `outputs` is meant; donated arguments may be gone.
  Status Launch(std::span<const std::span<pjrt::Buffer* const>> rows, int device,
                std::span<const int64_t> non_donatable, const collective::LaunchId& launch,
                std::span<pjrt::Buffer* const> tickets, pjrt::ExecuteOutputs* outputs) const;

  // One of its executables, for what all of them have in common.
  const pjrt::Executable& representative() const { return *executables_[0]; }
  // Of one shard.
  std::vector<TensorType> OutputTypes() const;
  // How the results lie over the partitions: an OpSharding. Asks the plugin for a gang.
  Result<std::string> OutputSharding() const;
  int64_t temp_bytes() const { return temp_bytes_; }  // per device
  int64_t code_bytes() const { return code_bytes_; }
  bool is_gang() const { return kind_ == Kind::kGang; }
  bool is_spanning() const { return kind_ == Kind::kSpanning; }
  // Of each shard here, as given.
  const std::vector<int>& devices() const { return devices_; }

 private:
  enum class Kind { kPortable, kGang, kShards, kSpanning };

  Computation(Kind kind, std::vector<Executable> executables);
  Status LaunchGang(const pjrt::ExecuteArgs& args, pjrt::ExecuteOutputs* outputs) const;
  Status LaunchShards(pjrt::ExecuteArgs args, std::span<pjrt::Buffer* const> tickets,
                      pjrt::ExecuteOutputs* outputs) const;

  Kind kind_;
  std::vector<Executable> executables_;
  std::vector<int> devices_;          // kShards, kSpanning
  std::string output_sharding_;       // kShards, kSpanning
  std::vector<size_t> row_to_shard_;  // kGang: the executable's row -> row of Launch; empty when they are the same
  int64_t temp_bytes_ = 0;
  int64_t code_bytes_ = 0;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_COMPUTATION_H_
