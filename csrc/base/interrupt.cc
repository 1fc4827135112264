#include "csrc/base/interrupt.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"

namespace pathways::interrupt {
namespace {

struct Entry {
  uint64_t began = 0;  // signals before it
  std::function<void()> give_up;
};

struct State {
  explicit State(Runtime of) : runtime(of) { sem_init(&arrived, 0, 0); }

  const Runtime runtime;
  const pid_t process = getpid();
  sem_t arrived;
  std::once_flag started;
  // Only the main thread's: the signals that the runtime has acted upon.
  uint64_t settled = 0;
  std::mutex mutex;
  std::map<uint64_t, Entry> waits PW_GUARDED_BY(mutex);
  uint64_t next_id PW_GUARDED_BY(mutex) = 1;
};

// Leaked, as everything that a signal handler or a thread may meet at exit.
std::atomic<State*> the_state{nullptr};
std::atomic<uint64_t> signals{0};

// Handlers there were before ours: the first, and the last. A handler that was put before ours later calls ours, which
// then must not call it again.
std::atomic<const struct sigaction*> first_handler{nullptr};
std::atomic<const struct sigaction*> last_handler{nullptr};
thread_local volatile sig_atomic_t inside = 0;

void Call(const struct sigaction& handler, int number, siginfo_t* info, void* context) {
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(number, info, context);
  } else if (handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN) {
    handler.sa_handler(number);
  }
}

void OnSignal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  if (inside != 0) {
    Call(*first_handler.load(), number, info, context);
    errno = saved;
    return;
  }
  inside = 1;
  // The runtime learns of it first: whoever is woken below finds the signal pending there.
  Call(*last_handler.load(), number, info, context);
  State* const state = the_state.load();
  if (state != nullptr && state->process == getpid()) {
    signals.fetch_add(1);
    sem_post(&state->arrived);
  }
  inside = 0;
  errno = saved;
}

// Puts our handler before the one that is there now. Main thread only.
void PutHandler() {
  struct sigaction now{};
  if (sigaction(SIGINT, nullptr, &now) != 0) return;
  const bool takes_info = (now.sa_flags & SA_SIGINFO) != 0;
  if (takes_info && now.sa_sigaction == &OnSignal) return;
  if (!takes_info && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  const struct sigaction* const last = last_handler.load();
  const bool known = last != nullptr && last->sa_flags == now.sa_flags &&
                     (takes_info ? last->sa_sigaction == now.sa_sigaction : last->sa_handler == now.sa_handler);
  if (!known) {
    const auto* const kept = new struct sigaction(now);  // leaked: a handler may be reading the one before
    if (last == nullptr) first_handler = kept;
    last_handler = kept;
  }
  struct sigaction ours = now;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = &OnSignal;
  sigaction(SIGINT, &ours, nullptr);
}

void Serve(State* state) {
  pthread_setname_np(pthread_self(), "pw-interrupt");
  for (;;) {
    if (sem_wait(&state->arrived) != 0) continue;  // EINTR
    const uint64_t now = signals.load();
    std::vector<std::function<void()>> given_up;
    {
      std::lock_guard lock(state->mutex);
      for (auto it = state->waits.begin(); it != state->waits.end();) {
        if (it->second.began >= now) {
          ++it;
          continue;
        }
        given_up.push_back(std::move(it->second.give_up));
        it = state->waits.erase(it);
      }
    }
    if (given_up.empty()) continue;
    if (state->runtime.about_to_give_up != nullptr) state->runtime.about_to_give_up();
    for (const auto& give_up : given_up) give_up();
  }
}

// The state when this is the main thread of the process that enabled interrupts.
State* OnMainThread() {
  State* const state = the_state.load(std::memory_order_acquire);
  if (state == nullptr || syscall(SYS_gettid) != state->process) return nullptr;
  return state;
}

// Signals before a wait that begins now, and whether one of them is still to be acted upon. Main thread only.
std::pair<uint64_t, bool> Begin(State* state) {
  PutHandler();
  const uint64_t now = signals.load();
  if (now == state->settled) return {now, false};
  if (state->runtime.pending != nullptr && state->runtime.pending()) return {now, true};
  state->settled = now;
  return {now, false};
}

}  // namespace

void Enable(Runtime runtime) {
  State* expected = nullptr;
  auto* const fresh = new State(runtime);
  if (!the_state.compare_exchange_strong(expected, fresh)) delete fresh;
  Observe();
}

void Observe() {
  if (OnMainThread() != nullptr) PutHandler();
}

uint64_t Count() { return signals.load(); }

Wait::Wait(std::function<void()> give_up) {
  State* const state = OnMainThread();
  if (state == nullptr) return;
  std::call_once(state->started, [state] { std::thread([state] { Serve(state); }).detach(); });
  const auto [began, pending] = Begin(state);
  if (pending) {
    if (state->runtime.about_to_give_up != nullptr) state->runtime.about_to_give_up();
    give_up();
    return;
  }
  std::lock_guard lock(state->mutex);
  id_ = state->next_id++;
  state->waits[id_] = {began, std::move(give_up)};
  // One that came since `began` was read has perhaps been served without this wait.
  if (signals.load() != began) sem_post(&state->arrived);
}

void Wait::End() {
  if (id_ == 0) return;
  State* const state = the_state.load();
  std::function<void()> forgotten;  // declared first, so destroyed after the lock is let go
  std::lock_guard lock(state->mutex);
  if (auto node = state->waits.extract(id_); !node.empty()) forgotten = std::move(node.mapped().give_up);
  id_ = 0;
}

Watch::Watch() {
  State* const state = OnMainThread();
  if (state == nullptr) return;
  main_ = true;
  std::tie(begin_, pending_) = Begin(state);
}

void Watch::Settle() {
  pending_ = false;
  begin_ = Count();
}

void Watch::AboutToGiveUp() const {
  State* const state = the_state.load();
  if (main_ && state->runtime.about_to_give_up != nullptr) state->runtime.about_to_give_up();
}

}  // namespace pathways::interrupt
