// Interrupts: a Ctrl-C (SIGINT) ends waits of the process's main thread, which otherwise sleeps in C++ until the value
// is there.
//
// A language runtime such as Python only notes a signal and acts when its main thread is back in its own code. So waits
// of that thread are known here, and a signal gives up those that began before it. What was waited for stays as it is.
//
//   interrupt::Wait wait([...] { event->Set(Cancelled(interrupt::kMessage)); });   // or
//   interrupt::Watch watch; while (...) if (watch.interrupted()) ...
//
// The handler is put before whatever handler there is at Enable and when a wait begins, since runtimes replace theirs
// at any time (IPython does so for each cell), and calls that one. A process whose SIGINT is ignored or kills it is
// left alone.
//
// Ownership: process-wide state, never destroyed. A forked child has none of it: there nothing is given up.
// Threads:   every function may be called from any thread; off the main thread waits are never interrupted. Waits are
//            given up on a thread of this file's own, `pw-interrupt`, which the first wait starts.
// Locks:     one mutex for the list of waits; never held while anything is called.
#ifndef PTPATHWAYS_BASE_INTERRUPT_H_
#define PTPATHWAYS_BASE_INTERRUPT_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace pathways::interrupt {

// What the status of a wait that was given up begins with.
inline constexpr char kMessage[] = "interrupted: only the wait was given up, the value is still computed";

// The language runtime.
struct Runtime {
  // Whether a signal has come that the runtime has not acted upon yet. Main thread only.
  bool (*pending)() = nullptr;
  // Called on any thread, the main thread being in C++, before waits are given up: what fails there now fails because
  // of the signal.
  void (*about_to_give_up)() = nullptr;
};

// From now on signals give up waits of the main thread. The first call counts.
void Enable(Runtime runtime);

// How many signals have come.
uint64_t Count();

// Puts the handler in its place, as each wait of the main thread does: for bounds that hold other threads back on its
// behalf, and which go by Count. Does nothing off the main thread.
void Observe();

// Something that `give_up` ends early. Destroying it, or End, forgets it; give_up may then still be running.
class Wait {
 public:
  Wait() = default;
  // Called at once if a signal is pending. Does nothing off the main thread.
  explicit Wait(std::function<void()> give_up);
  ~Wait() { End(); }
  Wait(Wait&& other) noexcept : id_(other.id_) { other.id_ = 0; }
  Wait& operator=(Wait&&) = delete;
  void End();

 private:
  uint64_t id_ = 0;
};

// For waits in slices: whether a signal came since it was made, or was pending then.
class Watch {
 public:
  Watch();
  bool interrupted() const { return main_ && (pending_ || Count() != begin_); }
  // Signals so far are dealt with.
  void Settle();
  // To be called before failing with kMessage.
  void AboutToGiveUp() const;

 private:
  bool main_ = false;
  bool pending_ = false;
  uint64_t begin_ = 0;
};

}  // namespace pathways::interrupt

#endif  // PTPATHWAYS_BASE_INTERRUPT_H_
