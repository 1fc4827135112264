#include "csrc/controller/cluster_state.h"

#include <algorithm>

#include "csrc/base/log_limit.h"
#include "csrc/controller/admission.h"

namespace pathways::controller {
using wire::Type;

void ClusterState::OnMessage(const Connection& from, std::string frame, std::vector<Payload> payloads, uint64_t now_ms,
                             Outputs& out) {
  now_ms_ = now_ms;
  Outbox outbox(now_ms, from, out, log_);
  Result<wire::Head> head = wire::DecodeHead(frame);
  if (Status few = wire::CheckPayloads(payloads.size()); !few.ok()) head = std::move(few);
  const Members::Member* member = members_.Find(from);
  if (!head.ok()) {
    outbox.Note("refused a message: " + head.status().ToString());
    outbox.Send(from, wire::Reject{head.status()});
    return;
  }
  if (head->header.type == Type::kHello) {
    if (member != nullptr) {
      outbox.Send(from, wire::Reject{FailedPrecondition("this connection has already joined")});
      return;
    }
    OnHello(from, head->body, address_.empty() ? "" : " from " + address_, outbox);
    return;
  }
  if (head->header.type == Type::kIslandJoin || (member == nullptr && head->header.type == Type::kKeyValue)) {
    return OnIslandMessage(from, *head, outbox);
  }
  if (member == nullptr) {
    // A peer dropped for silence that speaks again, or one that never joined.
    outbox.Send(from, wire::Reject{FailedPrecondition("expected HELLO as the first message of a connection, got " +
                                                      std::string(wire::TypeName(head->header.type)))});
    return;
  }
  members_.Heard(from, now_ms);
  Message message{*head, frame, payloads, 0};
  if (head->header.type == Type::kGoodbye) {
    const Result<wire::Goodbye> goodbye = wire::Decode<wire::Goodbye>(head->body);
    Lose(*member, goodbye.ok() && !goodbye->reason.empty() ? goodbye->reason : "it has left", outbox);
  } else if (member->role == wire::Role::kWorker) {
    const uint32_t host = member->index;
    if (Status status = of_workers_.Take(host, message, outbox); !status.ok()) {
      outbox.Note("host " + hosts_[host].description.name + ": " + status.ToString());
    }
  } else if (head->header.type != Type::kHeartbeat) {
    if (const Status room = of_clients_.Take(member->index, message, outbox); !room.ok()) {
      return Disconnect(from, room.ToString(), outbox);
    }
  } else {
    return;
  }
  of_clients_.GrantTurns(outbox);
}

void ClusterState::OnHello(const Connection& from, std::string_view body, const std::string& where, Outbox& outbox) {
  auto refuse = [&](Status status) {
    outbox.Note("refused to let a peer join: " + status.ToString());
    outbox.Send(from, wire::Reject{std::move(status)});
  };
  Result<wire::Hello> hello = wire::Decode<wire::Hello>(body);
  if (!hello.ok()) return refuse(hello.status());
  if (Status texts = CheckTexts(*hello); !texts.ok()) return refuse(std::move(texts));
  if (Status same = CheckBuild(hello->build, hello->name, options_.build); !same.ok()) return refuse(std::move(same));
  wire::Welcome welcome;
  welcome.cluster = options_.cluster;
  welcome.heartbeat_interval_ms = options_.heartbeat_interval_ms;
  welcome.lease_ms = options_.lease_ms;
  welcome.pid = options_.pid;
  welcome.process_space = options_.process_space;

  if (hello->role == wire::Role::kClient) {
    if (Status fits = clients_.Check(*hello); !fits.ok()) return refuse(std::move(fits));
    const Client& client = clients_.Add(*hello, from, next_session_++, outbox.now_ms());
    const uint32_t index = client.index;
    resources_.NameClient(index, "client " + Quoted(hello->name) + " (pid " + std::to_string(hello->pid) + ")");
    scheduler_.AddClient(index, hello->weight, hello->priority);
    members_.Add(from, wire::Role::kClient, index, outbox.now_ms());
    outbox.Note(client.Describe() + " has joined" + where);
    welcome.peer = index;
    welcome.hosts = hosts_.Descriptions();
    welcome.session = client.session;
    welcome.identities = hosts_.IdentitiesOf(client.identity(), 0);
    return outbox.Send(from, welcome);
  }
  if (hello->role != wire::Role::kWorker) return refuse(InvalidArgument("expected role client or worker"));
  if (Status fits = hosts_.Check(*hello, groups_.has_host(hello->island, hello->name)); !fits.ok()) {
    return refuse(std::move(fits));
  }
  if (expected_.MustWait(hello->name)) return expected_.Wait(hello->name, {from, std::string(body)});
  expected_.Joined(hello->name);
  const uint32_t island = IslandNumber(Hosts::IslandOf(*hello));
  const Host& host = hosts_.Add(*std::move(hello), from, next_session_++, island);
  const wire::HostDescription& description = host.description;
  members_.Add(from, wire::Role::kWorker, description.host, outbox.now_ms());
  welcome.peer = description.host;
  welcome.session = description.session;
  welcome.identities = hosts_.IdentitiesOf(host.identity(), 0);
  welcome.data_key = host.data_key;
  resources_.AddHost(description);
  std::vector<int64_t> limits;
  for (const wire::DeviceDescription& device : description.devices) limits.push_back(device.memory_limit_bytes);
  memory_.AddHost(description.host, description.first_device, limits, description.staging_limit_bytes);
  outbox.Note(host.Describe() + " has joined" + where + ": " + std::to_string(description.devices.size()) + " " +
              description.platform + " device" + (description.devices.size() == 1 ? "" : "s") + " from number " +
              std::to_string(description.first_device) + " on, island " + Quoted(description.island));
  welcome.hosts = hosts_.Descriptions();
  outbox.Send(from, welcome);
  // Hosts that are expected come in a row: the others need to know them only when all are there.
  if (!expected_.under_way()) TellAllOfNewHosts(from, outbox);
  if (std::optional<ExpectedHosts::Call> next = expected_.TakeNext()) OnHello(next->from, next->hello, "", outbox);
}

void ClusterState::TellClientsOfHosts(Outbox& outbox) const {
  Hosts::Announcement announcement(hosts_);
  for (const auto& [index, client] : clients_) {
    outbox.Pass(client.connection, announcement.For(client.identity()));
  }
}

void ClusterState::TellAllOfNewHosts(const Connection& joined, Outbox& outbox) {
  TellClientsOfHosts(outbox);
  Hosts::Announcement announcement(hosts_);
  for (const Host& host : hosts_) {
    if (!host.alive() || host.connection == joined) continue;
    outbox.Pass(host.connection, announcement.For(host.identity()));
  }
  hosts_.Announced();
}

void ClusterState::OnIslandMessage(const Connection& from, const wire::Head& head, Outbox& outbox) {
  auto refuse = [&](Status status) {
    outbox.Note("refused a host's plugin: " + status.ToString());
    outbox.Send(from, wire::Reject{std::move(status)});
  };
  if (members_.Find(from) != nullptr)
    return refuse(FailedPrecondition("expected ISLAND_JOIN on a connection of its own"));
  IslandGroups::Answers answers;
  if (head.header.type == Type::kIslandJoin) {
    Result<wire::IslandJoin> join = wire::Decode<wire::IslandJoin>(head.body);
    if (!join.ok()) return refuse(join.status());
    if (Status same = CheckBuild(join->build, join->name, options_.build); !same.ok()) return refuse(std::move(same));
    groups_.Join(from, *std::move(join), outbox.now_ms(), answers);
  } else {
    Result<wire::KeyValue> request = wire::Decode<wire::KeyValue>(head.body);
    if (!request.ok()) return refuse(request.status());
    groups_.Request(from, *std::move(request), outbox.now_ms(), answers);
  }
  SendAnswers(answers, outbox);
}

void ClusterState::SendAnswers(const IslandGroups::Answers& answers, Outbox& outbox) {
  for (const IslandGroups::Answer& answer : answers) {
    if (answer.body.request == 0 && !answer.body.status.ok()) outbox.Note("island: " + answer.body.status.ToString());
    outbox.Send(answer.to, answer.body);
  }
  for (const IslandGroups::Answer& answer : answers) {
    if (answer.lost_host.empty()) continue;
    if (const Host* host = hosts_.Named(answer.lost_host)) {
      LoseHost(host->description.host, std::string(answer.body.status.message()), outbox);
    }
  }
}

uint32_t ClusterState::IslandNumber(const std::string& name) {
  const auto known = hosts_.islands().find(name);
  return known == hosts_.islands().end() ? scheduler_.AddIsland() : known->second;
}

void ClusterState::OnDisconnected(const Connection& from, const std::string& reason, Outputs& out) {
  Outbox outbox(now_ms_, from, out, log_);
  Disconnect(from, reason, outbox);
}

void ClusterState::Disconnect(const Connection& from, const std::string& reason, Outbox& outbox) {
  expected_.Forget(from);
  if (groups_.knows(from)) {
    IslandGroups::Answers answers;
    groups_.OnDisconnected(from, reason, answers);
    SendAnswers(answers, outbox);
    return of_clients_.GrantTurns(outbox);
  }
  const Members::Member* member = members_.Find(from);
  if (member == nullptr) return;
  Lose(*member, reason, outbox);
  of_clients_.GrantTurns(outbox);
}

void ClusterState::Lose(const Members::Member& member, const std::string& reason, Outbox& outbox) {
  if (member.role == wire::Role::kClient) {
    LoseClient(member.index, reason, outbox);
  } else {
    LoseHost(member.index, reason, outbox);
  }
}

void ClusterState::OnServing(uint64_t pid, uint64_t standby, Outputs& out) {
  if (serving_.pid != 0) ++serving_.takeovers;
  serving_.pid = pid;
  serving_.standby = standby;
  for (const std::string& connection : groups_.connections()) {
    OnDisconnected(connection, "its connection for its plugin's keys ended with the controller's process", out);
  }
}

void ClusterState::OnHostExited(const std::string& name, const std::string& reason, Outputs& out) {
  Outbox outbox(now_ms_, {}, out, log_);
  const Host* host = hosts_.Named(name);
  if (host == nullptr) return;
  LoseHost(host->description.host, reason, outbox);
  of_clients_.GrantTurns(outbox);
}

void ClusterState::LoseHost(uint32_t index, const std::string& reason, Outbox& outbox) {
  Host& host = hosts_[index];
  if (!host.alive()) return;
  hosts_.Lose(index, reason);
  outbox.Note(host.lost_reason);
  members_.Remove(host.connection);
  runs_.Forget(index);
  watch_.Forget(index);
  resources_.RemoveHost(index);
  memory_.RemoveHost(index);
  const wire::HostLost lost{index, host.lost_reason};
  for (const Host& other : hosts_) {
    if (other.alive()) outbox.Send(other.connection, lost);
  }
  const Status status = Unavailable(host.lost_reason);
  for (auto& [client_index, client] : clients_) {
    outbox.Send(client.connection, lost);
    registry_.LoseHost(index, client, status, outbox);
  }
  runs_.FailOf(index, status, outbox);
  for (const uint32_t client_index : clients_.Indices()) of_clients_.Release(client_index, outbox);
  // Last, so that runs fail for the first cause.
  IslandGroups::Answers answers;
  groups_.OnHostLost(hosts_[index].description.name, reason, answers);
  SendAnswers(answers, outbox);
}

void ClusterState::LoseClient(uint32_t index, const std::string& reason, Outbox& outbox) {
  Client* client = clients_.Find(index);
  if (client == nullptr) return;
  outbox.Note(client->Describe() + " is gone: " + reason + "; its buffers and functions are collected");
  members_.Remove(client->connection);
  const uint64_t session = client->session;
  registry_.Forget(*client);
  clients_.Remove(index);
  scheduler_.DropClient(index, outbox.now_ms());
  runs_.DropClient(index);
  resources_.DropClient(index);
  memory_.DropClient(index);
  for (const Host& host : hosts_) {
    if (host.alive()) outbox.Send(host.connection, wire::OwnerGone{index, session});
  }
}

void ClusterState::TellOfSilence(const Members::Change& change, Outbox& outbox) {
  const auto [member, silence_ms] = change;
  const bool is_host = member.role == wire::Role::kWorker;
  const std::string& name = is_host ? hosts_[member.index].description.name : clients_.at(member.index).name;
  const std::string who = (is_host ? "host " : "client ") + Quoted(name);
  if (is_host && !member.silent) watch_.Resumed(member.index, outbox.now_ms());
  outbox.Note(member.silent ? "nothing was heard of " + who + " for " + std::to_string(silence_ms / 1000) +
                                  " s: it is stopped, or cut off; it is given up after " +
                                  std::to_string(options_.lease_ms / 1000) + " s"
                            : who + " is heard of again");
  if (!is_host) return;
  hosts_[member.index].description.alive = member.silent ? wire::kHostSilent : wire::kHostAlive;
  TellClientsOfHosts(outbox);
}

void ClusterState::OnTick(uint64_t now_ms, Outputs& out) {
  now_ms_ = now_ms;
  Outbox outbox(now_ms, {}, out, log_);
  IslandGroups::Answers answers;
  groups_.Tick(now_ms, answers);
  SendAnswers(answers, outbox);
  if (memory_.has_waiters()) {
    memory_.Tick(now_ms);
    gate_.SendOrders(outbox);
    of_clients_.GrantTurns(outbox);
  }
  const std::optional<Members::Found> found = members_.Tick(now_ms);
  if (!found) return;
  if (found->was_suspended) watch_.AllResumed(now_ms);
  watch_.Tick(outbox);
  runs_.LetGo(std::nullopt, outbox);
  for (const Members::Change& change : found->changed) TellOfSilence(change, outbox);
  for (const Connection& connection : found->present) outbox.Send(connection, wire::Heartbeat{});
  for (const auto& [connection, silence_ms] : found->lost) {
    Outbox of_member = outbox.For(connection);
    Disconnect(connection, "nothing was heard of it for " + std::to_string(silence_ms) + " ms", of_member);
  }
}

Outputs ClusterState::Farewell(const std::string& reason) const {
  Outputs out;
  for (const auto& [connection, member] : members_)
    out.push_back({connection, wire::Encode(wire::Goodbye{reason}), {}});
  for (const IslandGroups::Answer& answer : groups_.Farewell(reason)) {
    out.push_back({answer.to, wire::Encode(answer.body), {}});
  }
  return out;
}

std::string ClusterState::StatusJson(uint64_t now_ms) const {
  const auto last_heard_ms = [this](const Connection& connection) -> std::optional<uint64_t> {
    const Members::Member* member = members_.Find(connection);
    return member == nullptr ? std::nullopt : std::optional(member->last_heard_ms);
  };
  const StatusReport::Sources sources{options_, serving_, hosts_,     clients_,     scheduler_,
                                      watch_,   memory_,  resources_, last_heard_ms};
  return StatusReport(sources, now_ms).Json();
}

bool ClusterState::Knows(const Connection& connection) const {
  return members_.Find(connection) != nullptr || groups_.knows(connection) || expected_.knows(connection);
}

}  // namespace pathways::controller
