#include "csrc/client/files.h"

#include <optional>
#include <string>
#include <utility>

#include "csrc/client/session.h"

namespace pathways::client {

Status Files::CheckSaved(const Shard& shard, uint32_t host) const {
  // Buffer ids are unique only within one cluster, so the session is checked, too.
  const Session& of = *shard.buffer->session();
  if (&of != core_.session) return FailedPrecondition(of.LeftText());
  PW_ASSIGN_OR_RETURN(const uint32_t on, core_.HostOf(shard.device()));
  if (on != host) return InvalidArgument("a host can save only shards that lie on it");
  // The run that should have made the value explains best why it is not there.
  return shard.buffer->Outcome().value_or(OkStatus());
}

FileOperation Files::Save(wire::Save save, std::span<const SavedShard> shards) {
  for (const SavedShard& item : shards) {
    if (Status status = CheckSaved(item.shard, save.host); !status.ok()) {
      const FileOperation refused;
      refused.done->Set(status);
      return refused;
    }
    save.shards.push_back({item.shard.buffer->id(), item.shard.index, item.boxes});
  }
  save.request = core_.MintIds();
  return AskHost(save);
}

FileOperation Files::Load(wire::Load load) {
  load.request = core_.MintIds();
  return AskHost(load);
}

template <typename Message>
FileOperation Files::AskHost(const Message& message) {
  const FileOperation operation;
  {
    std::lock_guard lock(core_.mutex);
    open_.Begin(message.request, operation, message.host);
  }
  Status status = CheckHost(message.host);
  if (status.ok()) status = core_.Send(message);
  // The host may be lost, or the session closed, between the check and the message; then nobody else would end this.
  if (status.ok()) status = CheckHost(message.host);
  if (!status.ok()) {
    {
      std::lock_guard lock(core_.mutex);
      open_.GiveUp(message.request);
    }
    operation.done->Set(status);
  }
  return operation;
}

Status Files::CheckHost(uint32_t host) const {
  std::lock_guard lock(core_.mutex);
  if (core_.closed) return Cancelled("the session is closed");
  PW_RETURN_IF_ERROR(core_.CheckHost(host));
  if (core_.hosts.HasValues(host)) return OkStatus();
  return Status(Code::kUnimplemented, "host '" + core_.hosts[host].name + "' is simulated: its devices have no values");
}

Status Files::OnStored(const wire::Stored& answer, const Received& received) {
  std::optional<FileOperation> operation;
  {
    std::lock_guard lock(core_.mutex);
    PW_ASSIGN_OR_RETURN(operation, open_.Take(answer.request, received.from));
  }
  if (!operation) return OkStatus();
  *operation->answer = {answer.bytes, answer.elapsed_us, answer.crc32c};
  operation->done->Set(answer.status);
  return OkStatus();
}

}  // namespace pathways::client
