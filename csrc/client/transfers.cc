#include "csrc/client/transfers.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "csrc/client/waiting.h"

namespace pathways::client {
namespace {

using dataplane::DataPlane;

constexpr uint64_t kMaxUntakenBytes = uint64_t{1} << 30;

}  // namespace

std::shared_ptr<Event> Transfers::Fetch(const Shard& shard, void* destination, uint64_t size, uint64_t* request) {
  if (request != nullptr) *request = 0;
  if (destination != nullptr && size != static_cast<uint64_t>(shard.type().ByteSize())) {
    return Event::Done(InvalidArgument("expected room for " + shard.type().ToString() + " (" +
                                       std::to_string(shard.type().ByteSize()) + " bytes), got " +
                                       std::to_string(size)));
  }
  if (Status held = shard.buffer->CheckHeld(); !held.ok()) return Event::Done(held);
  // A run that failed explains best why its result cannot be read: its error names function and line.
  const std::optional<Status> outcome = shard.buffer->Outcome();
  if (outcome && !outcome->ok()) return Event::Done(*outcome);
  const Result<uint32_t> host = core_.HostOf(shard.device());
  if (!host.ok()) return Event::Done(host.status());
  wire::Fetch fetch;
  fetch.request = core_.MintIds();
  fetch.buffer = shard.buffer->id();
  fetch.shard = shard.index;
  fetch.device = shard.device();
  fetch.metadata_only = destination == nullptr;
  auto event = Event::Make();
  {
    std::lock_guard lock(core_.mutex);
    const auto failed = core_.failed_buffers.find(fetch.buffer);
    if (failed != core_.failed_buffers.end()) return Event::Done(failed->second);
    fetches_.Begin(fetch.request, {event, static_cast<char*>(destination), size, 0, *host});
  }
  if (request != nullptr) *request = fetch.request;
  // The buffer must not be freed before it has been read.
  event->OnReady([keep = shard.buffer](const Status&) {});
  Status status = core_.Send(fetch);
  // The host may have been lost between the check and the entry; then nobody else would end this fetch.
  if (status.ok()) status = core_.HostOf(shard.device()).status();
  if (!status.ok()) GiveUp(fetch.request, status);
  const std::shared_ptr<Event>& run = shard.buffer->ready();
  if (!run || outcome) return event;
  auto explained = Event::Make();
  event->OnReady([explained, run](const Status& fetched) {
    const std::optional<Status> cause = fetched.ok() ? std::nullopt : run->TryGet();
    explained->Set(cause && !cause->ok() ? *cause : fetched);
  });
  return explained;
}

void Transfers::GiveUp(uint64_t request, const Status& status) {
  std::optional<PendingFetch> given_up;
  {
    UniqueLock lock(core_.mutex);
    // One piece at most is being copied.
    while (fetches_.IsBeingWritten(request)) core_.changed.wait_for(lock, kInterruptSlice);
    given_up = fetches_.Take(request, status);
  }
  if (given_up) given_up->done->Set(status);
}

std::shared_ptr<Event> Transfers::Ready(const Shard& shard) {
  if (shard.buffer->ready()) return shard.buffer->ready();
  return Fetch(shard, nullptr, 0);
}

Status Transfers::OnFetched(const wire::Fetched& answer, const Received& received) {
  std::shared_ptr<Event> event;
  Status status = answer.status;
  {
    std::lock_guard lock(core_.mutex);
    if (const std::optional<uint32_t> asked = fetches_.HostOf(answer.request)) {
      PW_RETURN_IF_ERROR(CheckSender(*asked, received.from));
    }
    std::optional<PendingFetch> fetch = fetches_.Take(answer.request, status);
    if (!fetch) return OkStatus();
    event = std::move(fetch->done);
    if (status.ok() && fetch->destination != nullptr) {
      if (!core_.hosts.HasValues(fetch->host) && answer.size == fetch->size) {
        std::memset(fetch->destination, 0, fetch->size);
        fetched_ += fetch->size;
      } else if (answer.inline_data.size() != fetch->size) {
        status = DataLoss("expected " + std::to_string(fetch->size) + " bytes of a tensor, got " +
                          std::to_string(answer.inline_data.size()));
      } else if (fetch->size > 0) {
        std::memcpy(fetch->destination, answer.inline_data.data(), fetch->size);
        fetched_ += fetch->size;
      }
    }
  }
  event->Set(status);
  return OkStatus();
}

void Transfers::OnBytes(std::string_view, uint64_t key, uint64_t offset, uint64_t total,
                        std::span<const std::byte> bytes, transport::BulkLease lease) {
  const InCallback in_callback;
  char* destination = nullptr;
  {
    std::lock_guard lock(core_.mutex);
    destination = fetches_.StartWrite(key, offset, bytes.size(), total);
  }
  if (destination == nullptr) {
    lease.Drop(NotFound("nobody waits for these bytes"));
    return;
  }
  if (!bytes.empty()) std::memcpy(destination, bytes.data(), bytes.size());
  lease.Drop();
  fetched_ += bytes.size();
  std::optional<Ended> ended;
  {
    std::lock_guard lock(core_.mutex);
    ended = fetches_.EndWrite(key, bytes.size());
  }
  if (ended) ended->first->Set(ended->second);
}

void Transfers::OnTransferFailed(std::string_view, uint64_t key, const Status& status) {
  const InCallback in_callback;
  wire::Fetched answer;
  answer.request = key;
  answer.status = status.ok() ? Unavailable("the transfer failed") : status;
  (void)OnFetched(answer, {});
}

Status Transfers::MaySend(std::string_view peer, uint64_t key) const {
  std::lock_guard lock(core_.mutex);
  const std::optional<uint32_t> asked = fetches_.HostOf(key);
  if (!asked || peer == DataPlane::PeerOfHost(core_.hosts[*asked].name)) return OkStatus();
  return Status(Code::kPermissionDenied, "bytes of a fetch must come from the host that was asked");
}

void Transfers::Upload(uint64_t key, uint32_t host, const std::shared_ptr<HostMemory>& bytes) {
  const uint64_t size = bytes->size();
  uploaded_ += size;
  std::string peer;
  {
    UniqueLock lock(core_.mutex);
    if (!core_.hosts.HasValues(host)) return;  // it keeps types and times
    WaitForRoom(lock, core_.changed, "earlier uploads to be taken by their hosts", [&]() PW_REQUIRES(core_.mutex) {
      return untaken_bytes_ == 0 || untaken_bytes_ + size <= kMaxUntakenBytes || core_.closed ||
             !core_.controller_lost.ok() || !core_.hosts[host].alive;
    });
    untaken_bytes_ += size;
    peer = DataPlane::PeerOfHost(core_.hosts[host].name);
  }
  core_.data.load()->Send(peer, key, {bytes->data(), size}, [this, bytes, size](const Status&) {
    const InCallback in_callback;
    {
      std::lock_guard lock(core_.mutex);
      untaken_bytes_ -= size;
    }
    core_.changed.notify_all();
  });
}

void Transfers::FailUpload(uint64_t key, uint32_t host, const Status& status) {
  std::string peer;
  {
    std::lock_guard lock(core_.mutex);
    peer = DataPlane::PeerOfHost(core_.hosts[host].name);
  }
  core_.data.load()->SendFailure(peer, key, status);
}

// The host waits for bytes that will not come; the controller can still reach it.
void Transfers::OnSendFailed(const std::string& peer, uint64_t key, const Status& status) {
  std::optional<uint32_t> host;
  {
    std::lock_guard lock(core_.mutex);
    for (const wire::HostDescription& candidate : core_.hosts.all()) {
      if (peer == DataPlane::PeerOfHost(candidate.name) && candidate.alive) host = candidate.host;
    }
  }
  if (host) (void)core_.Send(wire::TransferFailed{*host, key, status});
}

void Transfers::List(std::vector<PendingItem>& out) const {
  fetches_.ForEach([&](const PendingFetch& fetch) {
    out.push_back({"fetch", std::to_string(fetch.size) + " bytes", {fetch.host}, fetch.since_ms});
  });
}

}  // namespace pathways::client
