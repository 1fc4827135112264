// CodeRoom: what hosts have compiled for a client, and who gives it up when they have little room for code.
//
// PyTorch/XLA keeps thousands of programs, and a process may have so many memory mappings (base/mappings.h). When hosts
// have little room left, the less recently used half of those who hold code lose it. It is compiled again at their next
// use.
//
// Ownership: functions and holders are held weakly; a holder owns its functions.
// Threads:   every method may be called from any thread.
// Locks:     mutex_ guards the tables and is a leaf: holders and the session are called without it.
#ifndef PTPATHWAYS_COMPILED_CODE_ROOM_H_
#define PTPATHWAYS_COMPILED_CODE_ROOM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/session.h"

namespace pathways::compiled {

// Something for which hosts have compiled functions, and can compile them again.
class CodeHolder {
 public:
  // Lets go of these functions. False: it is in use just now, and keeps them. Called by whoever has something else
  // compiled, who may hold locks of other holders.
  virtual bool GiveUpCode() const = 0;

 protected:
  ~CodeHolder() = default;

 private:
  friend class CodeRoom;
  mutable std::atomic<uint64_t> used_{0};  // the number of its last use
};

class CodeRoom {
 public:
  CodeRoom() = default;
  CodeRoom(const CodeRoom&) = delete;
  CodeRoom& operator=(const CodeRoom&) = delete;

  // `holder` is used now.
  void NoteUse(const CodeHolder& holder) { holder.used_.store(++uses_, std::memory_order_relaxed); }
  // From now on `holder` may be asked to give its code up, until it has done so.
  void Add(std::weak_ptr<const CodeHolder> holder);
  // Asks the less recently used half of the holders to give their code up, except for `asking`, which may be null.
  void MakeRoom(const CodeHolder* asking);

  // The function of that session registered for `key` before, if it is still alive; else registers `spec` there and
  // remembers it, after making room if a host has little. `asking`, whose locks may be held, is not asked to make room.
  Result<std::shared_ptr<client::Function>> RegisterOnce(const std::shared_ptr<client::Session>& session,
                                                         const std::string& key, client::FunctionSpec spec,
                                                         const CodeHolder* asking);

 private:
  std::atomic<uint64_t> uses_{0};
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<client::Function>> functions_ PW_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<const CodeHolder>> holders_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_CODE_ROOM_H_
