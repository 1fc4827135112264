// Functions: compiled modules that runs name: their registration with hosts, and what the hosts answer.
//
// Ownership: Functions is owned by the session and borrows the parts below it; a Function is shared and keeps its
//            session.
// Threads:   any.
// Locks:     the session's (core.h) guards what hosts have not answered; each Function has one for where it is
//            registered.
#ifndef PTPATHWAYS_CLIENT_FUNCTIONS_H_
#define PTPATHWAYS_CLIENT_FUNCTIONS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/pending.h"
#include "csrc/client/waiting.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

struct FunctionSpec {
  std::string name;
  std::string format;  // "hlo" or "mlir"
  std::string module;
  std::string options;  // CompileOptionsProto bytes, already rewritten for one_device or `devices`
  std::string source;   // the user's file:line, or empty
  uint32_t replicas = 1;
  uint32_t partitions = 1;
  // Compiled for one device and run on any device of the cluster, one at a time. Otherwise every run takes exactly
  // `devices` (replica-major), which must lie in one island.
  bool one_device = true;
  std::vector<uint32_t> devices;
  // Per-device output types when the caller could read them from the module; else the session waits for the compile.
  std::vector<TensorType> outputs;
  bool outputs_known = false;
  // Whether the hosts are to say how the results lie over the partitions; goes with outputs_known == false.
  bool wants_sharding = false;
  std::string output_sharding;  // what they said: an OpSharding, of a tuple if there are several results
};

// A registered function. Dropping the last reference unregisters it.
class Function {
 public:
  Function(std::shared_ptr<Session> session, uint64_t id, FunctionSpec spec);
  ~Function();
  uint64_t id() const { return id_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const FunctionSpec& spec() const { return spec_; }
  // "function 'f' (train.py:12)"
  const std::shared_ptr<const std::string>& description() const { return description_; }
  // Resolves when every host it was registered on has compiled it, with the first error otherwise.
  const std::shared_ptr<Event>& compiled() const { return compiled_; }
  // Where a function of several devices was registered, if that is several hosts; else null.
  std::shared_ptr<const std::vector<uint32_t>> GangHosts();

 private:
  friend class Functions;
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  FunctionSpec spec_;
  const std::shared_ptr<const std::string> description_;
  std::mutex mutex_;  // held while registering on a further host, so that no run overtakes it
  std::vector<uint32_t> hosts_ PW_GUARDED_BY(mutex_);  // where it is registered
  const std::shared_ptr<Event> compiled_ = Event::Make();
};

class Functions {
 public:
  Functions(Core& core, Waiting& waiting) : core_(core), waiting_(waiting) {}

  // Returns at once when spec.outputs_known; otherwise waits for the compile, and then spec().outputs is filled.
  Result<std::shared_ptr<Function>> Register(FunctionSpec spec);
  // The device's host, where the function is registered now if it was not before.
  Result<uint32_t> EnsureRegistered(Function& function, uint32_t device);
  // How much of what a host may take for compiled code is left, in percent: the least that compiles since the last call
  // have shown; 100 after none.
  uint32_t TakeCodeRoom();
  // Its handle is dropped.
  void Unregister(uint64_t id) noexcept;

  void OnRegistered(const wire::Registered& answer);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex);
  void List(std::vector<PendingItem>& out) const PW_REQUIRES(core_.mutex);

 private:
  struct Pending {
    Preparation compile;
    std::vector<TensorType> outputs;
    std::string output_sharding;
  };
  Status RegisterOn(Function& function, std::vector<uint32_t> devices) PW_REQUIRES(function.mutex_);

  Core& core_;
  Waiting& waiting_;
  std::unordered_map<uint64_t, Pending> pending_ PW_GUARDED_BY(core_.mutex);  // until their handles are dropped
  uint32_t code_room_ PW_GUARDED_BY(core_.mutex) = 100;                       // as in TakeCodeRoom
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_FUNCTIONS_H_
