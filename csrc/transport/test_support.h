// What this room's tests share: libzmq, a runtime directory, collectors with timeouts, and child processes.
//
// A child is this same binary again: it is started with PW_TEST_ROLE set, and a RoleRegistration of that name runs
// before main and ends the process. That is a real process with real sockets, without forking a threaded one.
#ifndef PTPATHWAYS_TRANSPORT_TEST_SUPPORT_H_
#define PTPATHWAYS_TRANSPORT_TEST_SUPPORT_H_

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/testing/test.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/transport/zmq_api.h"

extern char** environ;

namespace pathways::transport::testing {

inline constexpr std::chrono::seconds kPatience{30};

inline Status UseZmq() {
  const char* path = ::getenv("PW_LIBZMQ");
  if (path == nullptr) {
    return FailedPrecondition("PW_LIBZMQ must name libzmq, got nothing; set it to pyzmq.libs/libzmq-*.so* of the venv");
  }
  return LoadZmq(path);
}

// A directory for ipc sockets, removed at the end of the scope.
class RuntimeDirectory {
 public:
  RuntimeDirectory() {
    char name[] = "/tmp/pwtest-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~RuntimeDirectory() { ::rmdir(path_.c_str()); }
  std::string Ipc(const std::string& name) const { return "ipc://" + path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Something counted by one thread and awaited by another.
class Counter {
 public:
  void Add(uint64_t n = 1) {
    std::lock_guard lock(mutex_);
    value_ += n;
    changed_.notify_all();
  }
  // False when `value` is not reached in time.
  bool WaitFor(uint64_t value, std::chrono::nanoseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return value_ >= value; });
  }
  uint64_t value() {
    std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t value_ = 0;
};

// Hands messages and peer events to functions, on the reactor's thread.
class Handler : public SocketHandler {
 public:
  using OnMessageFunction = std::function<void(Socket&, std::string_view, Frames&)>;
  using OnEventFunction = std::function<void(Socket&, const PeerEvent&)>;
  explicit Handler(OnMessageFunction on_message, OnEventFunction on_event = nullptr)
      : on_message_(std::move(on_message)), on_event_(std::move(on_event)) {}
  void OnMessage(Socket& socket, std::string_view peer, Frames& frames) override { on_message_(socket, peer, frames); }
  void OnPeerEvent(Socket& socket, const PeerEvent& event) override {
    if (on_event_) on_event_(socket, event);
  }

 private:
  OnMessageFunction on_message_;
  OnEventFunction on_event_;
};

class RoleRegistration {
 public:
  // `body` returns the exit status; its argument is PW_TEST_ARGUMENT.
  RoleRegistration(const char* role, int (*body)(const std::string& argument)) {
    const char* wanted = ::getenv("PW_TEST_ROLE");
    if (wanted == nullptr || std::string(wanted) != role) return;
    const char* argument = ::getenv("PW_TEST_ARGUMENT");
    const int code = body(argument == nullptr ? "" : argument);
    std::fflush(nullptr);
    ::_exit(code);
  }
};

class Child {
 public:
  Child(const std::string& role, const std::string& argument) {
    const std::string role_text = "PW_TEST_ROLE=" + role, argument_text = "PW_TEST_ARGUMENT=" + argument;
    std::vector<char*> env;
    for (char** each = environ; *each != nullptr; ++each) env.push_back(*each);
    env.push_back(const_cast<char*>(role_text.c_str()));
    env.push_back(const_cast<char*>(argument_text.c_str()));
    env.push_back(nullptr);
    char name[] = "transport-test-child";
    char* argv[] = {name, nullptr};
    if (::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv, env.data()) != 0) pid_ = -1;
  }
  ~Child() {
    Kill();
    Wait();
  }
  void Kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }
  // The exit status, or -1 when it did not exit by itself.
  int Wait() {
    if (pid_ <= 0) return -1;
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace pathways::transport::testing

#endif  // PTPATHWAYS_TRANSPORT_TEST_SUPPORT_H_
