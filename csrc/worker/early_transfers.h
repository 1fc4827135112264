// EarlyTransfers: bytes, and failures, of transfers whose buffers are not announced yet: kept until they are, within
// bounds for each sender.
//
// Ownership: owned by Incoming; owns copies of the bytes. Threads: none inside; all is the data thread's. Locks: none.
#ifndef PTPATHWAYS_WORKER_EARLY_TRANSFERS_H_
#define PTPATHWAYS_WORKER_EARLY_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/transport/bulk.h"

namespace pathways::worker {

class EarlyTransfers {
 public:
  // Bytes of one peer are copied and their pieces let go of, since others,
  // which are waited for, may have to pass the peer's window before that. Beyond so many bytes a transfer is deferred
  // until its buffer is announced.
  static constexpr uint64_t kMaxKeptBytes = uint64_t{128} << 20;
  // Transfers that are too small to be deferred are refused beyond this.
  static constexpr uint64_t kMaxSmallBytes = uint64_t{256} << 20;
  // And transfers, of one peer. What comes beyond is let go, and its buffer fails when it is announced.
  static constexpr size_t kMaxTransfers = 1 << 16;

  // One message of a transfer.
  struct Item {
    std::string peer;  // who sent it; empty: this host itself
    uint64_t offset;
    uint64_t total;
    std::span<const std::byte> bytes;
    Status failure;
    std::shared_ptr<const void> owner;              // of the bytes
    std::shared_ptr<const void> counted = nullptr;  // while it lives, it is on its peer's account
    bool more_may_come = false;                     // of a failure: bytes, nevertheless
    bool deferred = false;                          // in place of bytes: the rest of the transfer
  };

  // Copies the bytes, defers the rest of a large transfer, or lets them go where their sender has no room.
  void Keep(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
            transport::BulkLease lease);
  // Bytes of this host itself: all of the transfer.
  void KeepOwn(uint64_t key, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);
  // In place of what the peer has sent under the key. `more_may_come`: bytes, nevertheless.
  void KeepFailure(std::string_view peer, uint64_t key, const Status& status, bool more_may_come);
  // All of one transfer, in the order in which it came; its buffer is announced.
  std::vector<Item> Take(uint64_t key);
  // Whether what the peer has sent under the key was let go, or may have been.
  bool MayHaveBeenLetGo(const std::string& peer, uint64_t key) const;
  // RESOURCE_EXHAUSTED: why it was.
  static Status TooMany();

  // What a peer of this name has sent is no concern of a later one's.
  void Forget(const std::string& peer);
  void ForgetAccount(const std::string& peer) { accounts_.erase(peer); }
  // Transfers whose keys are the client's, and those of its name; returns what was deferred, with its sender.
  std::vector<std::pair<uint64_t, std::string>> ForgetClient(uint32_t client, const std::string& peer);

  size_t size() const { return transfers_.size(); }
  uint64_t bytes_of(const std::string& peer) const { return accounts_.at(peer)->bytes; }

 private:
  // What one peer has sent whose buffers are not announced.
  struct Account {
    uint64_t bytes = 0;
    size_t transfers = 0;
    // The keys between which some were let go for want of room. Of the offender alone more may fail than were let go.
    uint64_t refused_from = UINT64_MAX;
    uint64_t refused_to = 0;
  };
  const std::shared_ptr<Account>& AccountOf(std::string_view peer);
  // Puts `bytes` of one transfer on the account; null, and noted, when it has no room for one more.
  static std::shared_ptr<const void> Charge(const std::shared_ptr<Account>& account, uint64_t key, uint64_t bytes);

  std::unordered_map<uint64_t, std::vector<Item>> transfers_;           // by key
  std::unordered_map<std::string, std::shared_ptr<Account>> accounts_;  // by peer
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_EARLY_TRANSFERS_H_
