#include "csrc/controller/forwarding.h"

#include <algorithm>

namespace pathways::controller {

Result<Outcome> Forwarding::Take(Client& owner, const wire::Put& put, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(put.buffer, "buffer"));
  PW_RETURN_IF_ERROR(owner.CheckOwns(put.key, "transfer"));
  PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(put.device));
  if (!host->alive()) {
    outbox.Send(owner.connection, wire::BufferFailed{put.buffer, Unavailable(host->lost_reason)});
  } else {
    if (!gate_.AskForBuffer(owner.index, put.key, put.buffer, put.type.ByteSize(), put.device,
                            std::max(put.shards_here, 1u) - 1, outbox)) {
      return owner.stream.MustWait(Wait::kMemory, put.buffer);
    }
    outbox.Pass(host->connection, std::move(message.frame), std::move(message.payloads));
  }
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Fetch& fetch, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(fetch.request, "request"));
  PW_RETURN_IF_ERROR(owner.CheckOwns(fetch.buffer, "buffer"));
  PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(fetch.device));
  if (!host->alive()) {
    outbox.Send(owner.connection, wire::Fetched{fetch.request, Unavailable(host->lost_reason), 0, {}});
  } else {
    const uint32_t index = host->description.host;
    // A host of this process takes what it is given at once, and counts nothing.
    const bool counts = sent_to_ != nullptr && !host->connection.starts_with("local/");
    if (counts && !owner.fetches[index].Pass(sent_to_(host->connection), host->load.received)) {
      return owner.stream.MustWait(Wait::kFetches, index);
    }
    outbox.Pass(host->connection, std::move(message.frame));
  }
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Free& free, Message& message, Outbox& outbox) {
  for (uint64_t id : free.buffers) PW_RETURN_IF_ERROR(owner.CheckOwns(id, "buffer"));
  if (free.host >= hosts_.size()) return InvalidArgument("FREE names host " + std::to_string(free.host));
  if (free.buffers.empty()) return Outcome::kHandled;  // all went ahead (FreeBehind)
  ledger_.Free(free.host, free.buffers);
  if (hosts_[free.host].alive()) outbox.Pass(hosts_[free.host].connection, std::move(message.frame));
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Save& save, Message& message, Outbox& outbox) {
  for (const wire::SavedShard& shard : save.shards) PW_RETURN_IF_ERROR(owner.CheckOwns(shard.buffer, "buffer"));
  PW_RETURN_IF_ERROR(AskForFiles(owner, save.request, save.host, message, outbox));
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Load& load, Message& message, Outbox& outbox) {
  for (const wire::LoadedShard& shard : load.shards) {
    PW_RETURN_IF_ERROR(owner.CheckOwns(shard.buffer, "buffer"));
    PW_RETURN_IF_ERROR(owner.CheckOwns(shard.key, "transfer"));
  }
  PW_RETURN_IF_ERROR(AskForFiles(owner, load.request, load.host, message, outbox));
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::TransferFailed& failed, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(failed.key, "transfer"));
  wire::PatchSequence(message.frame, 0);  // as no host's
  PW_RETURN_IF_ERROR(ToHost(failed.host, std::move(message.frame), outbox));
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Copy& copy, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(copy.source, "buffer"));
  PW_RETURN_IF_ERROR(owner.CheckOwns(copy.destination, "buffer"));
  PW_ASSIGN_OR_RETURN(Host * from, hosts_.OfDevice(copy.source_device));
  PW_ASSIGN_OR_RETURN(Host * to, hosts_.OfDevice(copy.destination_device));
  const Status* const failed = owner.failed_outputs.Find(copy.source);
  Status status = failed != nullptr ? *failed : OkStatus();
  for (const Host* host : {from, to}) {
    if (status.ok() && !host->alive()) status = Unavailable(host->lost_reason);
  }
  if (!status.ok()) {
    owner.failed_outputs.Note(copy.destination, 1, status);
    outbox.Send(owner.connection, wire::BufferFailed{copy.destination, std::move(status)});
    return Outcome::kHandled;
  }
  if (!gate_.AskForBuffer(owner.index, copy.destination, copy.destination, copy.type.ByteSize(),
                          copy.destination_device, 0, outbox)) {
    return owner.stream.MustWait(Wait::kMemory, copy.destination);
  }
  if (from != to) {
    outbox.Send(to->connection,
                wire::Expect{copy.destination, copy.destination_device, from->description.host, copy.type});
  }
  outbox.Pass(from->connection, std::move(message.frame));
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Query& query, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(query.request, "request"));
  if (query.function != 0) PW_RETURN_IF_ERROR(owner.CheckOwns(query.function, "function"));
  PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(query.device));
  if (!host->alive()) {
    outbox.Send(owner.connection, wire::Reply{query.request, Unavailable(host->lost_reason), {}, {}});
  } else {
    outbox.Pass(host->connection, std::move(message.frame));
  }
  return Outcome::kHandled;
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::OpenPipeline& open, Message& message, Outbox& outbox) {
  return ToPipeline(owner, open.pipeline, open.request, open.host, message, outbox);
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::Feed& feed, Message& message, Outbox& outbox) {
  for (const uint64_t key : feed.keys) PW_RETURN_IF_ERROR(owner.CheckOwns(key, "transfer"));
  return ToPipeline(owner, feed.pipeline, feed.request, feed.host, message, outbox);
}

Result<Outcome> Forwarding::Take(Client& owner, const wire::ClosePipeline& close, Message& message, Outbox& outbox) {
  return ToPipeline(owner, close.pipeline, 0, close.host, message, outbox);
}

Result<Outcome> Forwarding::ToPipeline(Client& owner, uint64_t pipeline, uint64_t request, uint32_t host_index,
                                       Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(pipeline, "pipeline"));
  if (request != 0) PW_RETURN_IF_ERROR(owner.CheckOwns(request, "request"));
  if (host_index >= hosts_.size()) {
    return InvalidArgument("an input pipeline is asked of host " + std::to_string(host_index) + ", there are " +
                           std::to_string(hosts_.size()));
  }
  const Host& host = hosts_[host_index];
  Status status;
  if (!host.alive()) {
    status = Unavailable(host.lost_reason);
  } else if (host.description.data_endpoint.empty()) {
    status = Unimplemented("host '" + host.description.name + "' is simulated and runs no input pipeline");
  }
  if (status.ok()) {
    outbox.Pass(host.connection, std::move(message.frame), std::move(message.payloads));
  } else if (request != 0) {
    outbox.Send(owner.connection, wire::Reply{request, status, {}, {}});
  }
  return Outcome::kHandled;
}

Status Forwarding::ToHost(uint32_t host, std::string frame, Outbox& outbox) {
  if (host >= hosts_.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  if (hosts_[host].alive()) outbox.Pass(hosts_[host].connection, std::move(frame));
  return OkStatus();
}

Status Forwarding::AskForFiles(Client& owner, uint64_t request, uint32_t host, Message& message, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(request, "request"));
  if (host >= hosts_.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  if (!hosts_[host].alive()) {
    outbox.Send(owner.connection, wire::Stored{request, host, Unavailable(hosts_[host].lost_reason), 0, 0, 0});
  } else {
    outbox.Pass(hosts_[host].connection, std::move(message.frame));
  }
  return OkStatus();
}

}  // namespace pathways::controller
