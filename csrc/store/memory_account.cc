#include "csrc/store/memory_account.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace pathways::store {

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

Status MemoryAccount::Check(size_t device, int64_t bytes, int64_t scratch, const std::string& what) const {
  if (Fits(device, bytes, scratch)) return OkStatus();
  const int64_t limit = limits_[device];
  std::string need = FormatBytes(bytes);
  if (scratch > 0) need += " and " + FormatBytes(scratch) + " while running";
  const bool never = bytes + scratch > limit;
  return ResourceExhausted("out of device memory: " + what + " needs " + need + " on local device " +
                           std::to_string(device) + ", which has " + FormatBytes(limit - used_[device]) + " free of " +
                           FormatBytes(limit) +
                           (never ? "; it can never fit: use a smaller batch or model, more devices, or a higher "
                                    "memory limit"
                                  : "; drop tensors you no longer need, or use a smaller batch"));
}

void MemoryAccount::Add(size_t device, uint32_t client, int64_t bytes) {
  used_[device] += bytes;
  peak_[device] = std::max(peak_[device], used_[device]);
  by_client_[client] += bytes;
}

void MemoryAccount::Remove(size_t device, uint32_t client, int64_t bytes) {
  used_[device] -= bytes;
  auto account = by_client_.find(client);
  if (account == by_client_.end()) return;
  account->second -= bytes;
  if (account->second == 0) by_client_.erase(account);
}

int64_t MemoryAccount::total_used() const { return std::accumulate(used_.begin(), used_.end(), int64_t{0}); }

int64_t MemoryAccount::used_by(uint32_t client) const {
  auto account = by_client_.find(client);
  return account == by_client_.end() ? 0 : account->second;
}

}  // namespace pathways::store
