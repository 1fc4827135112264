// Files: shards into files and out of them (docs/checkpoints.md). What is to be saved is taken note of in the order of
// the messages, so that later runs do not change it; the disk is waited for elsewhere.
//
// Ownership: owned by the engine; owns the thread that waits for disks.
// Threads:   Save, Load and Stop: the engine's, or its owner's when that has ended. Jobs run on "pw-files"; the
//            callbacks of the plugin hand them over.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_FILES_H_
#define PTPATHWAYS_WORKER_FILES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/wire/file_bodies.h"
#include "csrc/worker/file_root.h"
#include "csrc/worker/file_thread.h"
#include "csrc/worker/found_shard.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/pin.h"
#include "csrc/worker/tensor_file.h"

namespace pathways::worker {

class Files {
 public:
  // `root`: below which files are.
  Files(HostContext& context, Incoming& incoming, FileRoot root)
      : context_(context), incoming_(incoming), root_(std::move(root)) {}

  // Each is answered with STORED.
  void Save(wire::Save save);
  void Load(wire::Load load);
  // As FileThread::Stop.
  bool Stop(std::chrono::seconds timeout) { return thread_.Stop(timeout); }

 private:
  struct Saving;
  struct Bytes;
  // Sees to it that a shard's bytes as they are now are handed to the file thread, once they exist.
  void TakeOut(const std::shared_ptr<Saving>& saving, size_t index, FoundShard found);
  void CopyOut(const std::shared_ptr<Saving>& saving, size_t index, const std::shared_ptr<Pin>& pin,
               const std::shared_ptr<store::Origin>& origin);
  // As Write, when it is known that the run that made the shard has ended well.
  void WriteMade(const std::shared_ptr<Saving>& saving, size_t index, const std::shared_ptr<store::Origin>& origin,
                 Bytes bytes);
  // From any thread: a shard's bytes are there, or its error is. The last one finishes the file.
  void Write(const std::shared_ptr<Saving>& saving, size_t index, Status status, Bytes bytes);
  void Read(const wire::Load& load, Status status);
  Status ReadShards(const wire::Load& load, uint64_t* bytes, size_t* delivered);
  // Each file's contents that are to be looked at, unless they were found right lately.
  Status CheckContents(const wire::Load& load, const std::vector<TensorFile>& files);

  HostContext& context_;
  Incoming& incoming_;
  const FileRoot root_;
  std::atomic<uint64_t> copies_limit_{0};  // bytes of host memory for what is being saved; read by any thread
  std::unordered_map<std::string, std::string> checked_;  // by path: the state of files that were found right; of jobs
  FileThread thread_;                                     // the first to go: its jobs use the others
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FILES_H_
