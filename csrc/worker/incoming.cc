#include "csrc/worker/incoming.h"

#include <string>

#include "csrc/wire/bodies.h"

namespace pathways::worker {

void Incoming::Declare(uint64_t key, std::shared_ptr<pjrt::AsyncBuffer> buffer, uint32_t from_host) {
  data_->Post([this, key, buffer = std::move(buffer), from_host] {
    entries_[key] = Entry{buffer, from_host, 0};
    auto it = early_.find(key);
    if (it == early_.end()) return;
    std::vector<Early> early = std::move(it->second);
    early_.erase(it);
    for (Early& item : early) {
      if (!item.failure.ok()) {
        OnTransferFailed(key, item.failure);
      } else {
        OnBytes(key, item.offset, item.total, item.bytes, std::move(item.lease));
      }
    }
  });
}

void Incoming::OnBytes(uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
                       transport::BulkLease lease) {
  auto it = entries_.find(key);
  if (it == entries_.end()) {
    early_[key].push_back({offset, total, bytes, std::move(lease), {}});
    return;
  }
  Take(key, it->second, offset, total, bytes, std::move(lease));
}

void Incoming::Take(uint64_t key, Entry& entry, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
                    transport::BulkLease lease) {
  const uint64_t expected = static_cast<uint64_t>(entry.buffer->type().ByteSize());
  if (total != expected || offset > expected || bytes.size() > expected - offset ||
      entry.received + bytes.size() > expected) {
    Status status = DataLoss("expected " + std::to_string(expected) + " bytes for " + entry.buffer->type().ToString() +
                             ", got bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes.size()) +
                             " of " + std::to_string(total));
    lease.Drop(status);
    Fail(key, status);
    return;
  }
  entry.received += bytes.size();
  const bool last = entry.received == expected;
  std::shared_ptr<pjrt::AsyncBuffer> buffer = entry.buffer;
  if (last) entries_.erase(key);
  auto shared_lease = std::make_shared<transport::BulkLease>(std::move(lease));
  // The buffer's manager must outlive the callback and may not be destroyed from it, so the data thread lets it go.
  buffer->Transfer(bytes.data(), bytes.size(), offset, last, [this, buffer, shared_lease](Status) {
    shared_lease->Drop();
    data_->Post([buffer] {});
  });
}

void Incoming::OnTransferFailed(uint64_t key, const Status& status) {
  if (entries_.contains(key)) {
    Fail(key, status);
  } else {
    early_[key].push_back({0, 0, {}, {}, status});
  }
}

void Incoming::Fail(uint64_t key, const Status& status) {
  auto node = entries_.extract(key);
  if (node.empty()) return;
  (void)node.mapped().buffer->SetError(status);  // the plugin refuses only when the buffer is already complete
}

template <typename Predicate>
void Incoming::FailWhere(Predicate predicate, const Status& status) {
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) {
    if (predicate(key, entry)) keys.push_back(key);
  }
  for (uint64_t key : keys) Fail(key, status);
}

void Incoming::FailFromHost(uint32_t host, Status status) {
  data_->Post([this, host, status = std::move(status)] {
    FailWhere([host](uint64_t, const Entry& entry) { return entry.from_host == host; }, status);
  });
}

void Incoming::FailOfClient(uint32_t client, Status status) {
  data_->Post([this, client, status = std::move(status)] {
    FailWhere([client](uint64_t key, const Entry&) { return wire::ClientOf(key) == client; }, status);
    std::erase_if(early_, [client](const auto& item) { return wire::ClientOf(item.first) == client; });
  });
}

}  // namespace pathways::worker
