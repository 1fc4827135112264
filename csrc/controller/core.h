// Core: the whole of the controller that decides: ClusterState, and the lines over which its members speak. A pure
// state machine: inputs in; messages with the connections they go by out. The same inputs make the same state and the
// same messages, in whatever process: no clock, random number, address or system call has a part in it. A standby
// (standby.h) relies on that, and checks it by the digest of what went out.
//
// Members of the controller's own process (embedded clients, simulated hosts) come in by ApplyLocal. A controller with
// a standby has none.
//
// Ownership: owned by Controller, or Standby. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_CORE_H_
#define PTPATHWAYS_CONTROLLER_CORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/controller/cluster_state.h"
#include "csrc/controller/input.h"
#include "csrc/controller/lines.h"

namespace pathways::controller {

class Core {
 public:
  // What names of members of this process begin with.
  static constexpr std::string_view kLocal = "local/";

  // What comes of an input.
  struct Effects {
    Lines::Parcels parcels;                               // to be sent, in this order
    Outputs local;                                        // to members of this process
    std::vector<std::pair<Connection, std::string>> log;  // with whose message caused it
    std::string refused;                                  // why the message was, empty if it was not
    bool hosts_changed = false;                           // there are more, or fewer
    transport::Link::Dropped dropped;                     // to be destroyed without a lock
  };

  // A change of the join token. First members are told the keys of the next one, and nobody joins; when all have taken
  // that, or were given up, they are asked for.
  struct Rotation {
    std::string cluster, worker, client;  // the next token, and those of the roles that are made of it
  };

  explicit Core(ClusterOptions options);
  Core(const Core&) = delete;  // the state asks the lines
  Core& operator=(const Core&) = delete;

  void Apply(Input input, Effects& effects);
  // `step`: void(ClusterState&, Outputs&), an event of a member of this process.
  template <typename Step>
  void ApplyLocal(Step step, Effects& effects) {
    const uint32_t before = state_.live_host_count();
    Outputs out = std::move(spare_);
    state_.ComesFrom({});  // not from where an earlier member did
    step(state_, out);
    Finish(std::move(out), before, effects);
  }
  // A goodbye for everyone who is connected.
  void Farewell(const std::string& reason, Effects& effects);

  // Processes of members that are away: whether they are no more is part of the next tick's input.
  std::vector<uint64_t> ProcessesInDoubt() const { return lines_.ProcessesInDoubt(); }
  // Whether somebody has joined, or asked to, by this connection.
  bool Knows(std::string_view route) const { return lines_.Speaks(route) || state_.Knows(Connection(route)); }
  const ClusterState& state() const { return state_; }
  // The join token, once it has been changed; empty before.
  const std::string& token() const { return token_; }
  // The change that is under way.
  const std::optional<Rotation>& rotation() const { return rotation_; }
  // Whether all members know its keys.
  bool RotationIsKnown() const { return lines_.AllTook(); }
  // There is no standby, and none can come: no digest is made from now on.
  void LoseStandby() {
    has_standby_ = false;
    state_.LoseStandby();
  }
  // A number that two cores have in common whose messages so far were alike, while there is a standby.
  uint64_t digest() const { return digest_; }

 private:
  void OnMessage(Input& input, Outputs& out, Effects& effects);
  void OnServing(const Input& input, Outputs& out);
  void OnRotate(std::string_view lines, Outputs& out);
  // Sends what is in `out`, and ends who does not take it, or is no member any more.
  void Finish(Outputs out, uint32_t hosts_before, Effects& effects);
  void Emit(Outgoing& outgoing, Effects& effects);
  void Digest(const Effects& effects);

  Lines lines_;
  ClusterState state_;
  std::vector<std::pair<Connection, std::string>> overflowed_;  // members that do not read what they are sent, and why
  std::vector<Connection> ended_;                               // members whose lines end with this event
  Outputs spare_;                                               // empty, with the memory of an earlier event's
  bool has_standby_ = true;
  uint64_t digest_ = 0;
  std::string token_;
  std::optional<Rotation> rotation_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CORE_H_
