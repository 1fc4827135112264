// ClusterState: the messages of clients, but for programs and runs.
#include <algorithm>

#include "csrc/controller/cluster_state.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/pipeline_bodies.h"

namespace pathways::controller {
using wire::Type;

void ClusterState::OnClientMessage(uint32_t client, Message& message, Outbox& outbox) {
  Client& state = clients_.at(client);
  // Compiles, questions and input pipelines need no order among runs; all else keeps its place behind what waits.
  const Type type = message.head.header.type;
  const bool overtakes = type == Type::kRegister || type == Type::kRegisterPlan || type == Type::kQuery ||
                         type == Type::kRequestSlice || type == Type::kReleaseSlice || type == Type::kOpenPipeline ||
                         type == Type::kFeed || type == Type::kClosePipeline || type == Type::kTransferFailed;
  message.arrival = ++arrivals_;
  if (overtakes || state.stream.empty()) {
    Result<Outcome> outcome = HandleClient(client, message, outbox);
    if (!outcome.ok()) {
      outbox.Note("client " + state.name + ": " + outcome.status().ToString());
      outbox.Send(state.connection, wire::Reject{outcome.status()});
      return;
    }
    if (*outcome == Outcome::kHandled) return;
  }
  if (const Status room = state.stream.Push(message); !room.ok()) {
    const Connection connection = state.connection;
    outbox.Send(connection, wire::Reject{room});
    return Disconnect(connection, room.ToString(), outbox);
  }
  FreeBehind(state, outbox);
}

void ClusterState::ReleaseHeld(uint32_t index, Outbox& outbox) {
  Client* client = clients_.Find(index);
  if (client == nullptr) return;
  ClientStream& stream = client->stream;
  while (!stream.empty()) {
    Message message = stream.Front();
    Result<Outcome> outcome = HandleClient(index, message, outbox);
    if (outcome.ok() && *outcome == Outcome::kMustWait) return FreeBehind(*client, outbox);
    if (!outcome.ok()) outbox.Send(client->connection, wire::Reject{outcome.status()});
    stream.Pop();
    memory_.Cancel(index);  // in case it failed before it could go
  }
}

void ClusterState::FreeBehind(Client& owner, Outbox& outbox) {
  const auto places_of = [&owner](uint64_t id) -> const std::vector<uint64_t>* {
    auto program = owner.programs.find(id);
    return program == owner.programs.end() ? nullptr : &program->second.places.buffers();
  };
  for (const wire::Free& free : owner.stream.TakeFrees(places_of)) {
    // As if it had come before all that waits. A refusal then is the client's mistake, and told as such.
    std::vector<Payload> none;
    std::string frame = wire::Encode(free);
    const wire::Head head = *wire::DecodeHead(frame);
    Message message{head, frame, none, 0};
    if (auto outcome = HandleClient(owner.index, message, outbox); !outcome.ok()) {
      outbox.Send(owner.connection, wire::Reject{outcome.status()});
    }
  }
}

void ClusterState::GrantTurns(Outbox& outbox) {
  for (;;) {
    if (std::optional<scheduler::GangScheduler::Grant> grant = scheduler_.TakeGrant(outbox.now_ms())) {
      clients_.at(grant->client).stream.Grant(grant->run);
      ReleaseHeld(grant->client, outbox);
    } else if (std::optional<uint32_t> client = memory_.TakeReady()) {
      ReleaseHeld(*client, outbox);
    } else {
      return;
    }
  }
}

Result<Outcome> ClusterState::HandleClient(uint32_t client, Message& message, Outbox& outbox) {
  const Type type = message.head.header.type;
  if (!wire::IsRun(type)) runs_.LetGo(client, outbox);
  switch (type) {
    case Type::kRun: {
      PW_ASSIGN_OR_RETURN(const wire::Run run, wire::Decode<wire::Run>(message.head.body));
      return runs_.Take(clients_.at(client), run, message, outbox);
    }
    case Type::kRunProgram: {
      PW_ASSIGN_OR_RETURN(const wire::RunProgram run, wire::Decode<wire::RunProgram>(message.head.body));
      return runs_.Take(clients_.at(client), run, message, outbox);
    }
    case Type::kRunInPlace: {
      PW_ASSIGN_OR_RETURN(const wire::RunInPlace run, wire::Decode<wire::RunInPlace>(message.head.body));
      return runs_.Take(clients_.at(client), run, message, outbox);
    }
    case Type::kRegisterPlan: {
      PW_ASSIGN_OR_RETURN(const wire::RegisterPlan plan, wire::Decode<wire::RegisterPlan>(message.head.body));
      PW_RETURN_IF_ERROR(registry_.RegisterPlan(clients_.at(client), plan, message, outbox));
      return Outcome::kHandled;
    }
    case Type::kRegister: {
      PW_ASSIGN_OR_RETURN(const wire::Register request, wire::Decode<wire::Register>(message.head.body));
      PW_RETURN_IF_ERROR(registry_.Register(clients_.at(client), request, message, outbox));
      return Outcome::kHandled;
    }
    case Type::kCopy:
      return HandleCopy(client, message, outbox);
    case Type::kRequestSlice:
      PW_RETURN_IF_ERROR(HandleRequestSlice(client, message, outbox));
      return Outcome::kHandled;
    case Type::kReleaseSlice:
      PW_RETURN_IF_ERROR(HandleReleaseSlice(client, message));
      return Outcome::kHandled;
    case Type::kPut: {
      PW_ASSIGN_OR_RETURN(wire::Put put, wire::Decode<wire::Put>(message.head.body));
      PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(put.buffer, "buffer"));
      PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(put.key, "transfer"));
      PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(put.device));
      if (!host->alive()) {
        outbox.Send(clients_.at(client).connection, wire::BufferFailed{put.buffer, Unavailable(host->lost_reason)});
      } else {
        if (!gate_.AskForBuffer(client, put.key, put.buffer, put.type.ByteSize(), put.device,
                                std::max(put.shards_here, 1u) - 1, outbox)) {
          return clients_.at(client).stream.MustWait(Wait::kMemory, put.buffer);
        }
        outbox.Pass(host->connection, std::move(message.frame), std::move(message.payloads));
      }
      return Outcome::kHandled;
    }
    case Type::kFetch: {
      PW_ASSIGN_OR_RETURN(wire::Fetch fetch, wire::Decode<wire::Fetch>(message.head.body));
      PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(fetch.request, "request"));
      PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(fetch.buffer, "buffer"));
      PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(fetch.device));
      if (!host->alive()) {
        outbox.Send(clients_.at(client).connection,
                    wire::Fetched{fetch.request, Unavailable(host->lost_reason), 0, {}});
      } else {
        const uint32_t index = host->description.host;
        Client& owner = clients_.at(client);
        // A host of this process takes what it is given at once, and counts nothing.
        const bool counts = options_.sent_to != nullptr && !host->connection.starts_with("local/");
        if (counts && !owner.fetches[index].Pass(options_.sent_to(host->connection), host->load.received)) {
          return owner.stream.MustWait(Wait::kFetches, index);
        }
        outbox.Pass(host->connection, std::move(message.frame));
      }
      return Outcome::kHandled;
    }
    case Type::kSave: {
      PW_ASSIGN_OR_RETURN(wire::Save save, wire::Decode<wire::Save>(message.head.body));
      for (const wire::SavedShard& shard : save.shards)
        PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(shard.buffer, "buffer"));
      PW_RETURN_IF_ERROR(ForwardFileRequest(client, save.request, save.host, message, outbox));
      return Outcome::kHandled;
    }
    case Type::kLoad: {
      PW_ASSIGN_OR_RETURN(wire::Load load, wire::Decode<wire::Load>(message.head.body));
      for (const wire::LoadedShard& shard : load.shards) {
        PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(shard.buffer, "buffer"));
        PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(shard.key, "transfer"));
      }
      PW_RETURN_IF_ERROR(ForwardFileRequest(client, load.request, load.host, message, outbox));
      return Outcome::kHandled;
    }
    case Type::kFree: {
      PW_ASSIGN_OR_RETURN(wire::Free free, wire::Decode<wire::Free>(message.head.body));
      for (uint64_t id : free.buffers) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(id, "buffer"));
      if (free.host >= hosts_.size()) return InvalidArgument("FREE names host " + std::to_string(free.host));
      if (free.buffers.empty()) return Outcome::kHandled;  // all went ahead (FreeBehind)
      memory_.Free(free.host, free.buffers);
      if (hosts_[free.host].alive()) outbox.Pass(hosts_[free.host].connection, std::move(message.frame));
      return Outcome::kHandled;
    }
    case Type::kTransferFailed: {
      PW_ASSIGN_OR_RETURN(wire::TransferFailed failed, wire::Decode<wire::TransferFailed>(message.head.body));
      PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(failed.key, "transfer"));
      wire::PatchSequence(message.frame, 0);  // as no host's
      PW_RETURN_IF_ERROR(ForwardToHost(failed.host, std::move(message.frame), outbox));
      return Outcome::kHandled;
    }
    case Type::kUnregister: {
      PW_ASSIGN_OR_RETURN(const wire::Unregister request, wire::Decode<wire::Unregister>(message.head.body));
      PW_RETURN_IF_ERROR(registry_.Unregister(clients_.at(client), request, outbox));
      return Outcome::kHandled;
    }
    case Type::kQuery:
      PW_RETURN_IF_ERROR(HandleQuery(client, message, outbox));
      return Outcome::kHandled;
    case Type::kOpenPipeline:
    case Type::kFeed:
    case Type::kClosePipeline:
      PW_RETURN_IF_ERROR(HandlePipeline(client, message, outbox));
      return Outcome::kHandled;
    default:
      return InvalidArgument("a client may not send " + std::string(wire::TypeName(message.head.header.type)));
  }
}

Status ClusterState::ForwardToHost(uint32_t host, std::string frame, Outbox& outbox) {
  if (host >= hosts_.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  if (hosts_[host].alive()) outbox.Pass(hosts_[host].connection, std::move(frame));
  return OkStatus();
}

Status ClusterState::ForwardFileRequest(uint32_t client, uint64_t request, uint32_t host, Message& message,
                                        Outbox& outbox) {
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(request, "request"));
  if (host >= hosts_.size()) return InvalidArgument("expected a host, got number " + std::to_string(host));
  if (!hosts_[host].alive()) {
    outbox.Send(clients_.at(client).connection,
                wire::Stored{request, host, Unavailable(hosts_[host].lost_reason), 0, 0, 0});
  } else {
    outbox.Pass(hosts_[host].connection, std::move(message.frame));
  }
  return OkStatus();
}

Status ClusterState::HandleQuery(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(wire::Query query, wire::Decode<wire::Query>(message.head.body));
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(query.request, "request"));
  const Connection& connection = clients_.at(client).connection;
  if (query.kind == wire::QueryKind::kStatus) {
    wire::Reply reply;
    reply.request = query.request;
    reply.format = "json";
    outbox.Pass(connection, wire::Encode(reply), {std::make_shared<const std::string>(StatusJson(outbox.now_ms()))});
    return OkStatus();
  }
  if (query.function != 0) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(query.function, "function"));
  PW_ASSIGN_OR_RETURN(Host * host, hosts_.OfDevice(query.device));
  if (!host->alive()) {
    outbox.Send(connection, wire::Reply{query.request, Unavailable(host->lost_reason), {}, {}});
  } else {
    outbox.Pass(host->connection, std::move(message.frame));
  }
  return OkStatus();
}

Status ClusterState::HandlePipeline(uint32_t client, Message& message, Outbox& outbox) {
  uint64_t pipeline = 0, request = 0;
  uint32_t index = 0;
  if (message.head.header.type == Type::kOpenPipeline) {
    PW_ASSIGN_OR_RETURN(const wire::OpenPipeline open, wire::Decode<wire::OpenPipeline>(message.head.body));
    pipeline = open.pipeline, request = open.request, index = open.host;
  } else if (message.head.header.type == Type::kFeed) {
    PW_ASSIGN_OR_RETURN(const wire::Feed feed, wire::Decode<wire::Feed>(message.head.body));
    pipeline = feed.pipeline, request = feed.request, index = feed.host;
    for (const uint64_t key : feed.keys) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(key, "transfer"));
  } else {
    PW_ASSIGN_OR_RETURN(const wire::ClosePipeline close, wire::Decode<wire::ClosePipeline>(message.head.body));
    pipeline = close.pipeline, index = close.host;
  }
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(pipeline, "pipeline"));
  if (request != 0) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(request, "request"));
  if (index >= hosts_.size()) {
    return InvalidArgument("an input pipeline is asked of host " + std::to_string(index) + ", there are " +
                           std::to_string(hosts_.size()));
  }
  const Host& host = hosts_[index];
  Status status;
  if (!host.alive()) {
    status = Unavailable(host.lost_reason);
  } else if (host.description.data_endpoint.empty()) {
    status = Unimplemented("host '" + host.description.name + "' is simulated and runs no input pipeline");
  }
  if (status.ok()) {
    outbox.Pass(host.connection, std::move(message.frame), std::move(message.payloads));
  } else if (request != 0) {
    outbox.Send(clients_.at(client).connection, wire::Reply{request, status, {}, {}});
  }
  return OkStatus();
}

Result<Outcome> ClusterState::HandleCopy(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(wire::Copy copy, wire::Decode<wire::Copy>(message.head.body));
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(copy.source, "buffer"));
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(copy.destination, "buffer"));
  PW_ASSIGN_OR_RETURN(Host * from, hosts_.OfDevice(copy.source_device));
  PW_ASSIGN_OR_RETURN(Host * to, hosts_.OfDevice(copy.destination_device));
  for (Host* host : {from, to}) {
    if (host->alive()) continue;
    outbox.Send(clients_.at(client).connection, wire::BufferFailed{copy.destination, Unavailable(host->lost_reason)});
    return Outcome::kHandled;
  }
  if (!gate_.AskForBuffer(client, copy.destination, copy.destination, copy.type.ByteSize(), copy.destination_device, 0,
                          outbox)) {
    return clients_.at(client).stream.MustWait(Wait::kMemory, copy.destination);
  }
  if (from != to) {
    outbox.Send(to->connection,
                wire::Expect{copy.destination, copy.destination_device, from->description.host, copy.type});
  }
  outbox.Pass(from->connection, std::move(message.frame));
  return Outcome::kHandled;
}

}  // namespace pathways::controller
