#include "csrc/base/waits.h"

#include <pthread.h>

#include <map>
#include <mutex>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/thread_annotations.h"

namespace pathways::waits {
namespace {

struct Table {
  std::mutex mutex;
  uint64_t next PW_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, Wait> by PW_GUARDED_BY(mutex);
};

Table& TheTable() {
  static Table* const table = new Table;  // leaked: threads wait while the process ends
  return *table;
}

uint64_t Enter(Wait wait) {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  table.by.emplace(table.next, std::move(wait));
  return table.next++;
}

}  // namespace

Entry::Entry(std::string what, int64_t since_ms)
    : id_(Enter({static_cast<uint64_t>(::pthread_self()), since_ms == 0 ? NowMs() : since_ms, std::move(what)})) {}

Entry::~Entry() {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  table.by.erase(id_);
}

std::vector<Wait> UnderWay() {
  Table& table = TheTable();
  std::lock_guard lock(table.mutex);
  std::vector<Wait> out;
  for (const auto& [id, wait] : table.by) out.push_back(wait);
  return out;
}

}  // namespace pathways::waits
