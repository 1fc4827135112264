// Waits of this process's threads, for whoever tells the user of those that last.
//
//   waits::Entry entry("the value of a f32[4]");   // for as long as it lives, this thread waits for that
//
// Ownership: an entry owns its place in one table of the process. Threads: any; the table has its own lock, under which
// nothing else is taken.
#ifndef PTPATHWAYS_BASE_WAITS_H_
#define PTPATHWAYS_BASE_WAITS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pathways::waits {

struct Wait {
  uint64_t thread = 0;   // pthread_self() of the thread that waits, or that asked for what is waited for
  int64_t since_ms = 0;  // NowMs()
  std::string what;
};

class Entry {
 public:
  // `since_ms`: when the wait began, if that was before; 0: now.
  explicit Entry(std::string what, int64_t since_ms = 0);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

 private:
  const uint64_t id_;
};

// Those under way, the oldest first.
std::vector<Wait> UnderWay();

}  // namespace pathways::waits

#endif  // PTPATHWAYS_BASE_WAITS_H_
