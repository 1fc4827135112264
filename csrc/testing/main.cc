// The registry and main function of every room's test binary.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::testing {
namespace {

struct Case {
  const char* name;
  void (*body)();
  const char* file;
  int line;
};

std::vector<Case>& Cases() {
  static auto* cases = new std::vector<Case>();
  return *cases;
}

std::atomic<int> failures_in_test{0};
std::atomic<bool> skipped{false};

}  // namespace

bool Register(const char* name, void (*body)(), const char* file, int line) {
  Cases().push_back({name, body, file, line});
  return true;
}

void Fail(const char* file, int line, const std::string& what) {
  failures_in_test.fetch_add(1);
  std::printf("  %s:%d: %s\n", file, line, what.c_str());
  std::fflush(stdout);
}

void Skip(const std::string& why) {
  skipped.store(true);
  std::printf("  skipped: %s\n", why.c_str());
}

std::string PluginPath() {
  const char* path = std::getenv("PW_TEST_PJRT_PLUGIN");
  return path == nullptr ? "" : path;
}

namespace {

int RunAll(const char* filter) {
  std::vector<Case> cases = Cases();
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) {
    const int files = std::strcmp(a.file, b.file);
    return std::tie(files, a.line) < std::make_tuple(0, b.line);
  });
  int passed = 0, failed = 0, not_run = 0;
  for (const Case& test : cases) {
    if (filter != nullptr && std::strstr(test.name, filter) == nullptr) continue;
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    failures_in_test.store(0);
    skipped.store(false);
    const auto start = std::chrono::steady_clock::now();
    test.body();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const bool ok = failures_in_test.load() == 0;
    if (!ok) {
      ++failed;
    } else if (skipped.load()) {
      ++not_run;
    } else {
      ++passed;
    }
    std::printf("  %s (%.1f ms)\n", ok ? "ok" : "FAILED", took.count());
  }
  if (passed + failed + not_run == 0) std::printf("no test matched %s\n", filter == nullptr ? "(all)" : filter);
  if (not_run > 0) {
    std::printf("%d passed, %d failed, %d skipped\n", passed, failed, not_run);
  } else {
    std::printf("%d passed, %d failed\n", passed, failed);
  }
  std::fflush(stdout);
  return failed == 0 && passed + not_run > 0 ? 0 : 1;
}

}  // namespace
}  // namespace pathways::testing

int main(int argc, char** argv) {
  const int code = pathways::testing::RunAll(argc > 1 ? argv[1] : nullptr);
#if !defined(__SANITIZE_ADDRESS__)
  // A plugin's threads outlive its clients, and it aborts when they meet its static objects' ends. The workers leave
  // so, too. (With the address sanitizer leaks are looked for in the usual exit.)
  std::_Exit(code);
#endif
  return code;
}
