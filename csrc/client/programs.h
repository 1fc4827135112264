// Programs: dataflow graphs of functions (paper 4.2): their registration with hosts, and what the hosts answer.
//
// Ownership: Programs is owned by the session and borrows the parts below it; a Program is shared and keeps its
//            session.
// Threads:   any. Locks: the session's (core.h).
#ifndef PTPATHWAYS_CLIENT_PROGRAMS_H_
#define PTPATHWAYS_CLIENT_PROGRAMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/functions.h"
#include "csrc/client/pending.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::client {

// An argument or result of a program: shards of one type, shard i on devices[i].
struct Port {
  TensorType shard_type;
  std::vector<uint32_t> devices;
};

struct ProgramSpec {
  std::string name;
  std::string source;                     // the user's file:line, or empty
  std::vector<wire::RegisterPlan> plans;  // one per host; ids, name and source are filled in when it is registered
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<std::shared_ptr<Function>> functions;  // what the plans name; kept as long as the program
};

// A registered program. Dropping the last reference unregisters it.
class Program {
 public:
  Program(std::shared_ptr<Session> session, uint64_t id, ProgramSpec spec);
  ~Program();
  uint64_t id() const { return id_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const ProgramSpec& spec() const { return spec_; }  // without its plans
  // "program 'f' (train.py:12)"
  const std::shared_ptr<const std::string>& description() const { return description_; }
  const std::shared_ptr<const std::vector<uint32_t>>& hosts() const { return hosts_; }
  uint32_t channels() const { return channels_; }  // data keys that a run takes
  // Resolves when every host has its plan and the functions in it compiled, with the first error otherwise.
  const std::shared_ptr<Event>& ready() const { return ready_; }

 private:
  friend class Programs;
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  ProgramSpec spec_;
  std::shared_ptr<const std::vector<uint32_t>> hosts_;
  uint32_t channels_ = 0;
  const std::shared_ptr<const std::string> description_;
  const std::shared_ptr<Event> ready_ = Event::Make();
};

class Programs {
 public:
  Programs(Core& core, Functions& functions) : core_(core), functions_(functions) {}

  // Returns at once; runs wait at the controller until every host is ready.
  Result<std::shared_ptr<Program>> Register(ProgramSpec spec);
  // Its handle is dropped.
  void Unregister(uint64_t id) noexcept;

  void OnPlanReady(const wire::PlanReady& answer);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex);
  void List(std::vector<PendingItem>& out) const PW_REQUIRES(core_.mutex);

 private:
  // The hosts of the plans, one for each.
  Result<std::vector<uint32_t>> HostsOf(const ProgramSpec& spec) const;
  Status RegisterFunctionsOf(const ProgramSpec& spec);

  Core& core_;
  Functions& functions_;
  std::unordered_map<uint64_t, Preparation> pending_ PW_GUARDED_BY(core_.mutex);  // until their handles are dropped
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_PROGRAMS_H_
