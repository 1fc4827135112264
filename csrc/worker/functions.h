// Functions: what is registered on this host, by the client's ids. Compiles it, answers REGISTERED, and then goes on
// with what waited for it.
//
// Ownership: owned by the engine; owns the compiler; shares functions with the programs that call them.
// Threads:   the engine's; "pw-compile" hands its outcomes over. Locks: none.
#ifndef PTPATHWAYS_WORKER_FUNCTIONS_H_
#define PTPATHWAYS_WORKER_FUNCTIONS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "csrc/worker/cluster_view.h"
#include "csrc/worker/compiler.h"
#include "csrc/worker/function.h"
#include "csrc/worker/host_context.h"

namespace pathways::worker {

// Who waits for compiles.
class CompileListener {
 public:
  virtual ~CompileListener() = default;
  // A function of the program is compiled, or could not be.
  virtual void Compiled(uint64_t program, const Status& status) = 0;
  // The function that was asked for is compiled, or gone.
  virtual void Answer(const wire::Query& query) = 0;
};

class Functions {
 public:
  using Table = std::unordered_map<uint64_t, std::shared_ptr<Function>>;

  // `one_client`: the plugins of the hosts of an island make one client together.
  Functions(HostContext& context, const ClusterView& cluster, std::unique_ptr<Compiler> compiler, bool one_client,
            CompileListener& listener)
      : context_(context),
        cluster_(cluster),
        one_client_(one_client),
        listener_(listener),
        compiler_(std::move(compiler)) {}

  // The frames behind the head are the module and its options.
  Status Register(wire::Register request, const transport::Frames& frames);
  // Queries that wait for one of them are answered with an error.
  void Unregister(std::span<const uint64_t> ids);
  void ForgetClient(uint32_t client);
  // nullptr when there is none.
  const std::shared_ptr<Function>& Find(uint64_t id) const;
  const Table& all() const { return functions_; }
  // Drops what has not begun and waits for what has.
  void StopCompiling() { compiler_.reset(); }

 private:
  // What is to be compiled, and the function's shards of this host.
  Result<Compiler::Job> Prepare(const wire::Register& request, const transport::Frames& frames,
                                Function& function) const;
  void Compiled(uint64_t id, Compiler::Outcome outcome);

  HostContext& context_;
  const ClusterView& cluster_;
  const bool one_client_;
  CompileListener& listener_;
  std::unique_ptr<Compiler> compiler_;
  Table functions_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FUNCTIONS_H_
