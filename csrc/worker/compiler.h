// Compiler: compiles functions on a thread of its own, so that a long compile stops neither runs nor heartbeats.
//
// Ownership: owned by the engine; borrows the plugin's client.
// Threads:   Submit from any thread; `done` runs on "pw-compile". Locks: mutex_ guards the queue.
#ifndef PTPATHWAYS_WORKER_COMPILER_H_
#define PTPATHWAYS_WORKER_COMPILER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/pjrt/client.h"
#include "csrc/worker/compile_cache.h"
#include "csrc/worker/computation.h"

namespace pathways::worker {

class Compiler {
 public:
  struct Shard {
    uint32_t number = 0;  // among all of the slice, replica-major
    int device = 0;       // index, as in pjrt::Client::devices()
  };
  struct Job {
    std::string module;
    std::string format;
    std::string options;  // CompileOptionsProto, as the client gave it
    // For one device, whichever a launch names; what follows is then left out.
    bool one_device = false;
    int64_t replicas = 1;
    int64_t partitions = 1;
    std::vector<Shard> shards;  // those on this host
    // What the plugin calls the device of each shard, by number, when they are on several hosts whose plugins are one
    // client; otherwise empty.
    std::vector<int64_t> plugin_ids;
    bool want_sharding = false;  // Outcome::output_sharding is to be filled
  };
  struct Outcome {
    Status status;
    std::shared_ptr<const Computation> computation;  // when OK
    uint64_t compile_us = 0;
    std::string output_sharding;  // how the results lie over the partitions: an OpSharding
    uint32_t code_room = 100;     // of the mappings that this process may have, those that are left, in percent
  };
  using Done = std::function<void(Outcome)>;

  // As CompileCache. `kernels`: oneDNN's library, which computes convolutions and products where XLA's own code is
  // slower; empty: it is missing, which is said once; nothing: unwanted. `max_mappings`: as MappingsNow. Nothing is
  // compiled when hardly any is left.
  Compiler(std::shared_ptr<pjrt::Client> client, std::string scratch, std::optional<DiskCache> disk = {},
           std::optional<std::string> kernels = {}, uint64_t max_mappings = 0);
  ~Compiler();  // drops what has not begun
  void Submit(Job job, Done done);

 private:
  struct Item {
    Job job;
    Done done;
  };
  void Loop();
  Status CheckRoom() const;
  // Refuses what XLA would compile to something else, and writes anew what would end this process.
  Status Prepare(Job* job);
  Result<Computation> Compile(const Job& job);
  Result<Computation> CompileGang(const Job& job);
  Result<Computation> CompileShards(const Job& job, const pjrt::ShardProgram& program);
  Result<Computation> CompileSpanning(const Job& job);
  Result<Computation> CompileTogether(const Job& job);
  int64_t ThreadsPerDevice() const;  // once oneDNN is loaded
  // For a module that each device runs alone, or that its replicas run alike.
  Result<std::shared_ptr<const pjrt::Executable>> CompileUnpartitioned(const std::string& module,
                                                                       const std::string& format,
                                                                       const std::string& options);

  const std::shared_ptr<pjrt::Client> client_;
  const std::string scratch_;
  const uint64_t max_mappings_;
  CompileCache cache_;                  // the thread's
  std::optional<std::string> kernels_;  // the thread's; nothing once it is known not to serve
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_ PW_GUARDED_BY(mutex_);
  bool stopping_ PW_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_COMPILER_H_
