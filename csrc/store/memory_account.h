// MemoryAccount: who holds how much of each device's memory, and whether more fits.
//
// A pure state machine. Ownership: owned by a worker's engine. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_STORE_MEMORY_ACCOUNT_H_
#define PTPATHWAYS_STORE_MEMORY_ACCOUNT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::store {

// "1.50 GiB", "12 B"
std::string FormatBytes(int64_t bytes);

class MemoryAccount {
 public:
  // `limits[d]`: bytes of device d; 0 means that nothing is refused there.
  explicit MemoryAccount(std::vector<int64_t> limits) : limits_(std::move(limits)), used_(limits_.size(), 0) {}

  // Whether `bytes` more (plus `scratch`, needed only while running) fit on the device now.
  bool Fits(size_t device, int64_t bytes, int64_t scratch) const {
    return limits_[device] == 0 || used_[device] + bytes + scratch <= limits_[device];
  }
  // OK when they fit. RESOURCE_EXHAUSTED with the sizes otherwise; `what` names the asker.
  Status Check(size_t device, int64_t bytes, int64_t scratch, const std::string& what) const;
  void Add(size_t device, uint32_t client, int64_t bytes);
  void Remove(size_t device, uint32_t client, int64_t bytes);

  int64_t used(size_t device) const { return used_[device]; }
  int64_t peak(size_t device) const { return peak_.empty() ? 0 : peak_[device]; }
  int64_t limit(size_t device) const { return limits_[device]; }
  int64_t total_used() const;
  int64_t used_by(uint32_t client) const;

 private:
  std::vector<int64_t> limits_;
  std::vector<int64_t> used_;
  std::vector<int64_t> peak_ = std::vector<int64_t>(limits_.size(), 0);
  std::map<uint32_t, int64_t> by_client_;
};

}  // namespace pathways::store

#endif  // PTPATHWAYS_STORE_MEMORY_ACCOUNT_H_
