#include "csrc/base/process.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace pathways {
namespace {

std::atomic<int> noted{0};  // by this process, or by the one that this was forked from
std::atomic<int> forked_from{0};

// Destructors at exit would stop threads that are not there, and crash.
void ExitAtOnce(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

void InChild() {
  forked_from.store(noted.load());
  on_exit(&ExitAtOnce, nullptr);
}

}  // namespace

void NoteForks() {
  if (noted.exchange(static_cast<int>(getpid())) == 0) pthread_atfork(nullptr, nullptr, &InChild);
}

int ForkedFrom() { return forked_from.load(std::memory_order_relaxed); }

std::string ProcessSpace() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(file, boot) || boot.empty()) return "";
  char name[64];
  const ssize_t size = ::readlink("/proc/self/ns/pid", name, sizeof(name));
  return size <= 0 ? "" : boot + "/" + std::string(name, static_cast<size_t>(size));
}

bool ProcessIsGone(uint64_t pid) {
  if (pid == 0 || pid > std::numeric_limits<pid_t>::max()) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;  // perhaps hidden from us
  const size_t name_end = line.rfind(") ");     // the name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  return line[name_end + 2] == 'Z' || line[name_end + 2] == 'X';
}

}  // namespace pathways
