// Session: files that hosts write shards into and read shards out of.
#include "csrc/client/session_impl.h"

namespace pathways::client {
namespace {

template <typename Message, typename Files>
FileOperation AskHost(Message message, Files& files, std::mutex& mutex,
                      const std::function<Status(const Message&)>& send) {
  FileOperation operation;
  {
    std::lock_guard lock(mutex);
    files[message.request] = {operation.done, operation.outcome, message.host};
  }
  // The host may be lost, or the session closed, between the check and the entry; then nobody else would end this.
  if (Status status = send(message); !status.ok()) {
    {
      std::lock_guard lock(mutex);
      files.erase(message.request);
    }
    operation.done->Set(status);
  }
  return operation;
}

}  // namespace

FileOperation Session::Save(wire::Save save, std::span<const SavedShard> shards) {
  FileOperation refused;
  for (const SavedShard& item : shards) {
    const Result<uint32_t> host = impl_->HostOf(item.shard.device());
    Status status = host.status();
    // An id says nothing of its cluster: another one's buffer may bear it here.
    if (const Session& of = *item.shard.buffer->session(); &of != this)
      status = FailedPrecondition(of.impl_->LeftText());
    if (status.ok() && *host != save.host) status = InvalidArgument("a host can save only shards that lie on it");
    std::optional<Status> made = item.shard.buffer->ready() ? item.shard.buffer->ready()->TryGet() : std::nullopt;
    if (status.ok() && made && !made->ok()) status = *made;  // the run that should have made it explains best
    if (!status.ok()) {
      refused.done->Set(status);
      return refused;
    }
    save.shards.push_back({item.shard.buffer->id(), item.shard.index, item.boxes});
  }
  save.request = impl_->MintIds();
  return AskHost<wire::Save>(std::move(save), impl_->files, impl_->mutex, [this](const wire::Save& message) {
    PW_RETURN_IF_ERROR(impl_->CheckAlive(message.host));
    PW_RETURN_IF_ERROR(impl_->Send(message));
    return impl_->CheckAlive(message.host);
  });
}

FileOperation Session::Load(wire::Load load) {
  load.request = impl_->MintIds();
  return AskHost<wire::Load>(std::move(load), impl_->files, impl_->mutex, [this](const wire::Load& message) {
    PW_RETURN_IF_ERROR(impl_->CheckAlive(message.host));
    PW_RETURN_IF_ERROR(impl_->Send(message));
    return impl_->CheckAlive(message.host);
  });
}

Status Session::Impl::CheckAlive(uint32_t host) const {
  std::lock_guard lock(mutex);
  if (closed) return Cancelled("the session is closed");
  if (!controller_lost.ok()) return controller_lost;
  if (host >= hosts.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  if (!hosts[host].alive) return Unavailable(lost_reasons[host]);
  if (hosts[host].data_endpoint.empty()) {
    return Status(Code::kUnimplemented, "host '" + hosts[host].name + "' is simulated: its devices have no values");
  }
  return OkStatus();
}

void Session::Impl::OnStored(const wire::Stored& answer) {
  std::shared_ptr<Event> event;
  {
    std::lock_guard lock(mutex);
    auto node = files.extract(answer.request);
    if (node.empty()) return;
    *node.mapped().outcome = {answer.bytes, answer.elapsed_us, answer.crc32c};
    event = std::move(node.mapped().done);
  }
  event->Set(answer.status);
}

}  // namespace pathways::client
