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
#include <string>
#include <thread>

#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

class Compiler {
 public:
  struct Job {
    std::string module;
    std::string format;
    std::string options;
  };
  struct Outcome {
    Status status;
    std::unique_ptr<pjrt::Executable> executable;  // when OK
    uint64_t compile_us = 0;
    uint64_t temp_bytes = 0;
    uint64_t code_bytes = 0;
  };
  using Done = std::function<void(Outcome)>;

  explicit Compiler(std::shared_ptr<pjrt::Client> client);
  ~Compiler();  // drops what has not begun
  void Submit(Job job, Done done);

 private:
  struct Item {
    Job job;
    Done done;
  };
  void Loop();
  Outcome Compile(const Job& job) const;

  const std::shared_ptr<pjrt::Client> client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  std::thread thread_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_COMPILER_H_
