// Pipeline: a user's input pipeline on this host. Starts its Python processes, passes requests to them, and hands on
// the bytes that they answer with.
//
// A pipeline is one process group: the process that is started here, and those that it forks, which take turns. Each is
// the other end of a channel, a socket pair. What is said on it:
//
//   to the process    u32 length, bytes. The first message is what the pipeline was opened with; each is answered once.
//   from the process  u32 code (0: OK, else Status's), u32 length of a text, u32 count, u32 zero; the text (what it
//   says
//                     of itself, or the error); `count` u64 sizes. If their sum is not 0, a file descriptor comes with
//                     the first byte: memory with the values one after another, each at a multiple of 64 bytes.
//
// Memory passed like this has no name, so nothing is left behind by a process that dies. The processes ask the kernel
// to end with the thread that started them; the group is killed when the pipeline is closed, when a process ends, and
// when one does not answer in time. After that every request fails with the reason.
//
// Ownership: owned by the engine. Threads: Ask and the destructor belong to the engine's thread; "pw-pipe" reads and
// writes the channels and calls the listener. Locks: mutex_ guards asked_ and closing_.
#ifndef PTPATHWAYS_WORKER_PIPELINE_H_
#define PTPATHWAYS_WORKER_PIPELINE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::worker {

struct PipelineOptions {
  std::string python;  // the interpreter
  std::string script;  // what it runs
  std::string name;    // for errors
  uint32_t workers = 1;
  std::chrono::milliseconds open_timeout{120'000};  // for the first answer
  std::chrono::milliseconds batch_timeout{300'000};
};

// Values in memory that a process has written.
struct PipelineValues {
  std::vector<std::span<const std::byte>> values;
  std::shared_ptr<const void> owner;
};

class Pipeline {
 public:
  // Called once for each request, on the pipeline's thread.
  using Answered = std::function<void(const Status&, std::string text, PipelineValues values)>;

  // Starts the processes and gives the first of them `given`.
  static Result<std::unique_ptr<Pipeline>> Start(PipelineOptions options, const std::string& given, Answered opened);
  // Kills the processes. Requests that were not answered fail.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Asks process `worker`, modulo their number. `values`: how many it is to answer with.
  void Ask(uint32_t worker, const std::string& what, size_t values, Answered answered);

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    std::string bytes;  // with its length
    size_t values = 0;
    Answered answered;
  };
  struct Channel {
    int fd = -1;
    std::string out;
    std::string in;
    std::deque<int> descriptors;    // received and not used yet
    std::deque<Request> waiting;    // for an answer, in order
    Clock::time_point front_since;  // since when the first of them is the first
    bool opening = false;           // it has not answered at all
  };

  explicit Pipeline(PipelineOptions options) : options_(std::move(options)) {}
  Status Spawn();
  void Loop();
  // How long poll may sleep, in milliseconds.
  int PollTimeout(Clock::time_point now) const;
  void TakeAsked();
  Status Write(Channel& channel);
  Status Read(Channel& channel);
  // Handles whole answers at the front of channel.in.
  Status Answers(Channel& channel);
  void Break(const Status& status);
  // The end of the first process, as text. Kills the group.
  std::string Reap();

  const PipelineOptions options_;
  pid_t pid_ = -1;  // and process group
  int wake_fd_ = -1;
  std::thread thread_;
  // The thread's:
  std::vector<Channel> channels_;
  Status broken_;

  std::mutex mutex_;
  std::vector<std::pair<uint32_t, Request>> asked_ PW_GUARDED_BY(mutex_);
  bool closing_ PW_GUARDED_BY(mutex_) = false;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PIPELINE_H_
