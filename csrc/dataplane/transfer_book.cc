#include "csrc/dataplane/transfer_book.h"

#include <algorithm>

namespace pathways::dataplane {
namespace {

std::string Seconds(std::chrono::steady_clock::duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void TransferBook::Begin(uint64_t key, uint64_t bytes, Time now) { open_[key] = {bytes, 0, now}; }

void TransferBook::Progress(uint64_t key, uint64_t bytes) {
  if (auto at = open_.find(key); at != open_.end()) at->second.seen += bytes;
}

bool TransferBook::End(uint64_t key, TransferState state) {
  if (open_.erase(key) == 0) return false;
  ++ended_[static_cast<size_t>(state)];
  return true;
}

void TransferBook::EndAll(TransferState state) {
  ended_[static_cast<size_t>(state)] += open_.size();
  open_.clear();
}

std::vector<TransferBook::Stalled> TransferBook::TakeStalled(const std::string& peer, Time heard,
                                                             std::chrono::milliseconds limit, Time now) {
  std::vector<Stalled> stalled;
  for (const auto& [key, transfer] : open_) {
    const auto silence = now - std::max(transfer.begun, heard);
    if (silence < limit) continue;
    stalled.push_back(
        {key, DeadlineExceeded("expected " + peer + " to take the " + std::to_string(transfer.bytes) +
                               " bytes of transfer " + std::to_string(key) + ", got word of " +
                               std::to_string(transfer.seen) + " of them and " + Seconds(silence) +
                               " of silence on the data connection (limit " + Seconds(limit) +
                               "); check the network between the two, or set PTPATHWAYS_TRANSFER_TIMEOUT_S")});
  }
  for (const Stalled& item : stalled) End(item.key, TransferState::kFailed);
  return stalled;
}

}  // namespace pathways::dataplane
