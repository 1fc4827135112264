#include "csrc/worker/early_transfers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/wire/bodies.h"

namespace pathways::worker {

Status EarlyTransfers::TooMany() {
  return ResourceExhausted("expected at most " + std::to_string(EarlyTransfers::kMaxTransfers) +
                           " transfers of one sender before their buffers are announced, got more; these were let go");
}

void EarlyTransfers::KeepOwn(uint64_t key, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  transfers_[key].push_back({"", 0, bytes.size(), bytes, {}, std::move(owner)});
}

void EarlyTransfers::Keep(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total,
                          std::span<const std::byte> bytes, transport::BulkLease lease) {
  const std::shared_ptr<Account> account = AccountOf(peer);
  if (total > transport::kBulkInlineBytes) {
    const auto known = transfers_.find(key);
    const bool deferred = known != transfers_.end() &&
                          std::any_of(known->second.begin(), known->second.end(),
                                      [peer](const Item& item) { return item.deferred && item.peer == peer; });
    if (deferred) return lease.Defer();
    if (account->bytes + bytes.size() > kMaxKeptBytes) {
      std::shared_ptr<const void> counted = Charge(account, key, 0);
      if (counted == nullptr) return lease.Drop(TooMany());
      lease.Defer();
      transfers_[key].push_back({std::string(peer), 0, 0, {}, {}, nullptr, std::move(counted), false, true});
      return;
    }
  } else if (account->bytes + bytes.size() > kMaxSmallBytes) {
    const Status status =
        ResourceExhausted("expected at most " + std::to_string(kMaxSmallBytes >> 20) +
                          " MiB of one sender before their buffers are announced, got more; these were refused");
    lease.Drop(status);
    return KeepFailure(peer, key, status, true);
  }
  std::shared_ptr<const void> counted = Charge(account, key, bytes.size());
  if (counted == nullptr) return lease.Drop(TooMany());
  const auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  transfers_[key].push_back({std::string(peer), offset, total, *copy, {}, copy, std::move(counted)});
  lease.Drop();
}

void EarlyTransfers::KeepFailure(std::string_view peer, uint64_t key, const Status& status, bool more_may_come) {
  if (const auto at = transfers_.find(key); at != transfers_.end()) {
    std::erase_if(at->second, [peer](const Item& item) { return item.peer == peer; });  // of no use any more
    if (at->second.empty()) transfers_.erase(at);
  }
  std::shared_ptr<const void> counted;
  if (!peer.empty() && (counted = Charge(AccountOf(peer), key, 0)) == nullptr) return;
  transfers_[key].push_back({std::string(peer), 0, 0, {}, status, nullptr, std::move(counted), more_may_come});
}

const std::shared_ptr<EarlyTransfers::Account>& EarlyTransfers::AccountOf(std::string_view peer) {
  std::shared_ptr<Account>& account = accounts_[std::string(peer)];
  if (account == nullptr) account = std::make_shared<Account>();
  return account;
}

std::shared_ptr<const void> EarlyTransfers::Charge(const std::shared_ptr<Account>& account, uint64_t key,
                                                   uint64_t bytes) {
  if (account->transfers >= kMaxTransfers) {
    account->refused_from = std::min(account->refused_from, key);
    account->refused_to = std::max(account->refused_to, key);
    return nullptr;
  }
  ++account->transfers;
  account->bytes += bytes;
  return {account.get(), [account, bytes](const void*) {
            --account->transfers;
            account->bytes -= bytes;
          }};
}

bool EarlyTransfers::MayHaveBeenLetGo(const std::string& peer, uint64_t key) const {
  const auto at = accounts_.find(peer);
  return at != accounts_.end() && key >= at->second->refused_from && key <= at->second->refused_to;
}

std::vector<EarlyTransfers::Item> EarlyTransfers::Take(uint64_t key) {
  auto transfer = transfers_.extract(key);
  return transfer.empty() ? std::vector<Item>() : std::move(transfer.mapped());
}

void EarlyTransfers::Forget(const std::string& peer) {
  for (auto transfer = transfers_.begin(); transfer != transfers_.end();) {
    std::erase_if(transfer->second, [&](const Item& item) { return item.peer == peer; });
    transfer = transfer->second.empty() ? transfers_.erase(transfer) : std::next(transfer);
  }
  accounts_.erase(peer);
}

std::vector<std::pair<uint64_t, std::string>> EarlyTransfers::ForgetClient(uint32_t client, const std::string& peer) {
  std::vector<std::pair<uint64_t, std::string>> deferred;
  for (auto transfer = transfers_.begin(); transfer != transfers_.end();) {
    const uint64_t key = transfer->first;
    const bool own = wire::ClientOf(key) == client;
    std::erase_if(transfer->second, [&](const Item& item) {
      if (!own && item.peer != peer) return false;
      if (item.deferred) deferred.emplace_back(key, item.peer);
      return true;
    });
    transfer = transfer->second.empty() ? transfers_.erase(transfer) : std::next(transfer);
  }
  accounts_.erase(peer);
  return deferred;
}

}  // namespace pathways::worker
