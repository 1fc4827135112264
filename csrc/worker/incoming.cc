#include "csrc/worker/incoming.h"

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/wire/bodies.h"

namespace pathways::worker {

uint64_t Incoming::Entry::Expected() const {
  return static_cast<uint64_t>(assembly ? BoxBytes(buffer->type(), box) : buffer->type().ByteSize());
}

void Incoming::SetHosts(std::vector<std::string> names) {
  // Nobody calls the later host of a name before that.
  data_->Post([this, names = std::move(names)]() mutable {
    for (size_t i = host_names_.size(); i < names.size(); ++i) {
      if (std::ranges::find(host_names_, names[i]) == host_names_.end()) continue;
      early_.Forget(dataplane::DataPlane::PeerOfHost(names[i]));
    }
    host_names_ = std::move(names);
  });
}

Status Incoming::CheckSender(std::string_view peer, uint64_t key, uint32_t from_host) const {
  if (peer.empty()) return OkStatus();
  if (from_host == kFromClient) {
    if (peer == dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(key)))) return OkStatus();
  } else if (from_host < host_names_.size()) {
    const std::string_view name = host_names_[from_host];
    for (const std::string_view made : {std::string_view("w/"), std::string_view("to/")}) {
      if (peer.starts_with(made) && peer.substr(made.size()) == name) return OkStatus();
    }
  }
  return Status(Code::kPermissionDenied, "transfer " + std::to_string(key) + " is another peer's");
}

Status Incoming::MaySend(std::string_view peer, uint64_t key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? OkStatus() : CheckSender(peer, key, at->second.from_host);
}

void Incoming::Declare(uint64_t key, std::shared_ptr<pjrt::AsyncBuffer> buffer, uint32_t from_host) {
  data_->Post(
      [this, key, buffer = std::move(buffer), from_host] { Enter(key, Entry{buffer, from_host, 0, nullptr, {}, 0}); });
}

void Incoming::Assemble(std::vector<Piece> pieces, std::shared_ptr<pjrt::AsyncBuffer> buffer) {
  data_->Post([this, pieces = std::move(pieces), buffer = std::move(buffer)] {
    auto assembly = std::make_shared<Assembly>();
    assembly->buffer = buffer;
    assembly->pieces_left = pieces.size();
    const bool runs = std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return RunOffset(buffer->type(), piece.box).has_value() && BoxBytes(buffer->type(), piece.box) > 0;
    });
    if (!runs) assembly->memory = buffer->memory();
    if (!runs && assembly->memory == nullptr) {
      assembly->staging = HostMemory(static_cast<size_t>(buffer->type().ByteSize()));
      assembly->memory = reinterpret_cast<std::byte*>(assembly->staging.data());
    }
    for (const Piece& piece : pieces) {
      const uint64_t offset = runs ? static_cast<uint64_t>(*RunOffset(buffer->type(), piece.box)) : 0;
      Enter(piece.key, Entry{buffer, piece.from_host, 0, assembly, piece.box, offset});
    }
  });
}

void Incoming::Deliver(uint64_t key, std::span<const std::byte> bytes, std::shared_ptr<const void> owner, When when) {
  data_->Post([this, key, bytes, owner = std::move(owner), when] {
    auto it = entries_.find(key);
    if (it != entries_.end()) return Take(key, it->second, 0, bytes.size(), bytes, {}, owner);
    if (when == When::kDeclared || IsGone(wire::ClientOf(key))) return;
    early_.KeepOwn(key, bytes, owner);
  });
}

void Incoming::DeliverFailure(uint64_t key, Status status, When when) {
  data_->Post([this, key, status = std::move(status), when] {
    if (when == When::kDeclared) return Fail(key, status);
    OnTransferFailed("", key, status);
  });
}

void Incoming::Refuse(uint64_t key, uint32_t from_host, Status status) {
  data_->Post([this, key, from_host, status = std::move(status)] {
    Entry entry;
    entry.from_host = from_host;
    entry.refused = status;
    Enter(key, std::move(entry));
  });
}

void Incoming::Enter(uint64_t key, Entry entry) {
  entries_[key] = std::move(entry);
  if (IsGone(wire::ClientOf(key))) return Fail(key, Cancelled("its client is gone"));
  if (std::vector<EarlyTransfers::Item> early = early_.Take(key); !early.empty()) {
    TakeEarly(key, std::move(early));
  } else if (early_.MayHaveBeenLetGo(SenderOf(key, entries_[key].from_host), key)) {
    return Fail(key, EarlyTransfers::TooMany());
  }
  // What a lost host had sent counts, and no more will come.
  const auto entered = entries_.find(key);
  if (entered == entries_.end()) return;
  if (const auto lost = lost_.find(entered->second.from_host); lost != lost_.end()) Fail(key, lost->second);
}

std::string Incoming::SenderOf(uint64_t key, uint32_t from_host) const {
  if (from_host == kFromClient) {
    return dataplane::DataPlane::PeerOfClient(static_cast<uint32_t>(wire::ClientOf(key)));
  }
  return from_host < host_names_.size() ? "w/" + host_names_[from_host] : "";
}

void Incoming::FailTransfer(uint64_t key, uint32_t from_host, Status status) {
  data_->Post([this, key, from_host, status = std::move(status)] {
    if (const auto at = entries_.find(key); at == entries_.end()) {
      if (IsGone(wire::ClientOf(key))) return;
      const std::string peer = SenderOf(key, from_host);
      if (!peer.empty()) early_.KeepFailure(peer, key, status, true);
    } else if (at->second.buffer != nullptr && at->second.from_host == from_host) {
      FailAndRefuse(key, status);
    }
  });
}

void Incoming::TakeEarly(uint64_t key, std::vector<EarlyTransfers::Item> early) {
  for (EarlyTransfers::Item& item : early) {
    auto entered = entries_.find(key);
    Status wanted = entered == entries_.end() ? Cancelled("its buffer has failed")
                                              : CheckSender(item.peer, key, entered->second.from_host);
    if (item.deferred) {
      if (wanted.ok()) wanted = entered->second.refused;
      if (wanted.ok()) entered->second.resumed = true;
      data_->Resume(item.peer, key, std::move(wanted));
    } else if (!wanted.ok()) {
      continue;
    } else if (!item.failure.ok() && item.more_may_come) {
      FailAndRefuse(key, item.failure);
    } else if (!item.failure.ok()) {
      Fail(key, item.failure);
    } else {
      Take(key, entered->second, item.offset, item.total, item.bytes, {}, std::move(item.owner));
    }
  }
}

void Incoming::OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total,
                       std::span<const std::byte> bytes, transport::BulkLease lease) {
  if (auto it = entries_.find(key); it != entries_.end()) {
    Take(key, it->second, offset, total, bytes, std::move(lease), nullptr);
  } else if (IsGone(wire::ClientOf(key))) {
    lease.Drop(Cancelled("its client is gone"));
  } else {
    early_.Keep(peer, key, offset, total, bytes, std::move(lease));
  }
}

void Incoming::Take(uint64_t key, Entry& entry, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
                    transport::BulkLease lease, std::shared_ptr<const void> owner) {
  if (entry.buffer == nullptr) {
    // A sender that has more says that it stops (OnTransferFailed); of one that has not, all comes.
    if (!entry.resumed || offset == entry.received) entry.received += bytes.size();
    lease.Drop(entry.refused);
    if (entry.received >= total) entries_.erase(key);
    return;
  }
  if (entry.resumed && offset != entry.received) return lease.Defer();
  const uint64_t expected = entry.Expected();
  if (total != expected || offset > expected || bytes.size() > expected - offset ||
      entry.received + bytes.size() > expected) {
    Status status = DataLoss("expected " + std::to_string(expected) + " bytes for " + entry.buffer->type().ToString() +
                             ", got bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes.size()) +
                             " of " + std::to_string(total));
    lease.Drop(status);
    return FailWith(key, status, entry.received + bytes.size(), total);
  }
  entry.received += bytes.size();
  const bool last = entry.received == expected;
  if (std::shared_ptr<Assembly> assembly = entry.assembly) {
    const uint64_t run_offset = entry.run_offset;
    if (assembly->memory == nullptr) {
      if (last) {
        entries_.erase(key);
        --assembly->pieces_left;
      }
      if (assembly->failed) return lease.Drop();
      return Put(assembly->buffer, bytes, run_offset + offset, last && assembly->pieces_left == 0, std::move(lease),
                 std::move(owner));
    }
    if (!assembly->failed) {
      ScatterBox(entry.buffer->type(), entry.box, bytes.data(), offset, bytes.size(), assembly->memory);
    }
    lease.Drop();
    if (!last) return;
    entries_.erase(key);
    if (--assembly->pieces_left == 0 && !assembly->failed) Complete(assembly);
    return;
  }
  std::shared_ptr<pjrt::AsyncBuffer> buffer = entry.buffer;
  if (last) entries_.erase(key);
  Put(buffer, bytes, offset, last, std::move(lease), std::move(owner));
}

void Incoming::Put(const std::shared_ptr<pjrt::AsyncBuffer>& buffer, std::span<const std::byte> bytes, uint64_t offset,
                   bool last, transport::BulkLease lease, std::shared_ptr<const void> owner) {
  auto shared_lease = std::make_shared<transport::BulkLease>(std::move(lease));
  // The buffer's manager must outlive the callback and may not be destroyed from it, so the data thread lets it go.
  buffer->Transfer(bytes.data(), bytes.size(), offset, last,
                   [this, buffer, shared_lease, owner = std::move(owner)](const Status&) {
                     shared_lease->Drop();
                     data_->Post([buffer] {});
                   });
}

void Incoming::Complete(const std::shared_ptr<Assembly>& assembly) {
  // Of what lies in the buffer already nothing is left to transfer but the news that it is all there.
  const size_t size = assembly->staging.size();
  assembly->buffer->Transfer(assembly->memory, size, 0, true,
                             [this, assembly](const Status&) { data_->Post([assembly] {}); });
}

void Incoming::OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) {
  if (entries_.contains(key)) {
    Fail(key, status);
  } else if (!IsGone(wire::ClientOf(key))) {
    early_.KeepFailure(peer, key, status, false);
  }
}

void Incoming::OnPieceLost(std::string_view peer, uint64_t key, uint64_t size, uint64_t total, const Status& status) {
  const auto at = entries_.find(key);
  if (at != entries_.end()) return FailWith(key, status, at->second.received + size, total);
  if (!IsGone(wire::ClientOf(key))) early_.KeepFailure(peer, key, status, size < total);
}

void Incoming::Fail(uint64_t key, const Status& status) {
  auto node = entries_.extract(key);
  if (node.empty() || node.mapped().buffer == nullptr) return;
  if (on_failure_) on_failure_(status);
  if (const std::shared_ptr<Assembly>& assembly = node.mapped().assembly) {
    if (std::exchange(assembly->failed, true)) return;
  }
  (void)node.mapped().buffer->SetError(status);  // the plugin refuses only when the buffer is already complete
}

void Incoming::FailAndRefuse(uint64_t key, const Status& status) {
  const auto at = entries_.find(key);
  if (at == entries_.end()) return;
  const uint32_t from_host = at->second.from_host;
  Fail(key, status);
  Entry& refused = entries_[key];
  refused.from_host = from_host;
  refused.refused = status;
}

void Incoming::FailWith(uint64_t key, const Status& status, uint64_t seen, uint64_t total) {
  FailAndRefuse(key, status);
  const auto refused = entries_.find(key);
  if (refused == entries_.end()) return;
  refused->second.received = seen;
  if (seen >= total) entries_.erase(refused);
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
    lost_.emplace(host, status);
    early_.ForgetAccount(SenderOf(0, host));  // another one may come by that name
    FailWhere([host](uint64_t, const Entry& entry) { return entry.from_host == host; }, status);
  });
}

void Incoming::OnPeer(std::string_view peer, uint64_t session) {
  uint64_t& latest = sessions_[std::string(peer)];
  if (latest != 0 && session > latest) early_.Forget(std::string(peer));
  latest = std::max(latest, session);
  std::lock_guard lock(mutex_);
  std::erase_if(gone_, [&](const auto& gone) {
    return session > gone.second && peer == dataplane::DataPlane::PeerOfClient(gone.first);
  });
}

bool Incoming::IsGone(uint32_t client) const {
  std::lock_guard lock(mutex_);
  return gone_.contains(client);
}

void Incoming::FailOfClient(uint32_t client, Status status, uint64_t session) {
  {
    std::lock_guard lock(mutex_);
    gone_[client] = session;
  }
  data_->Post([this, client, status = std::move(status)] {
    FailWhere([client](uint64_t key, const Entry&) { return wire::ClientOf(key) == client; }, status);
    const std::string peer = dataplane::DataPlane::PeerOfClient(client);
    for (const auto& [key, sender] : early_.ForgetClient(client, peer)) data_->Resume(sender, key, status);
  });
}

}  // namespace pathways::worker
