#include "csrc/controller/cluster_state.h"

#include <algorithm>

namespace pathways::controller {
namespace {

using wire::Type;

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

template <typename Body>
Result<Body> DecodeBody(const wire::Head& head) {
  return wire::Decode<Body>(head.body);
}

}  // namespace

void ClusterState::OnMessage(const Connection& from, std::string frame, std::vector<Payload> payloads, uint64_t now_ms,
                             Outputs& out) {
  Result<wire::Head> head = wire::DecodeHead(frame);
  auto peer = peers_.find(from);
  if (!head.ok()) {
    Note("refused a message: " + head.status().ToString());
    Send(from, wire::Reject{head.status()}, out);
    return;
  }
  if (head->header.type == Type::kHello) {
    if (peer != peers_.end()) {
      Send(from, wire::Reject{FailedPrecondition("this connection has already joined")}, out);
      return;
    }
    OnHello(from, head->body, now_ms, out);
    return;
  }
  if (peer == peers_.end()) {
    // A peer dropped for silence that speaks again, or one that never joined.
    Send(from,
         wire::Reject{FailedPrecondition("expected HELLO as the first message of a connection, got " +
                                         std::string(wire::TypeName(head->header.type)))},
         out);
    return;
  }
  peer->second.last_heard_ms = now_ms;
  if (peer->second.role == wire::Role::kClient) {
    const uint32_t client = peer->second.index;
    if (head->header.type == Type::kHeartbeat) return;
    if (head->header.type == Type::kGoodbye) return LoseClient(client, out);
    OnClientMessage(client, *head, std::move(frame), std::move(payloads), out);
  } else {
    const uint32_t host = peer->second.index;
    if (Status status = OnWorkerMessage(host, *head, frame, payloads, out); !status.ok()) {
      Note("host " + hosts_[host].description.name + ": " + status.ToString());
    }
  }
}

void ClusterState::OnHello(const Connection& from, std::string_view body, uint64_t now_ms, Outputs& out) {
  auto refuse = [&](Status status) {
    Note("refused to let a peer join: " + status.ToString());
    Send(from, wire::Reject{std::move(status)}, out);
  };
  Result<wire::Hello> hello = wire::Decode<wire::Hello>(body);
  if (!hello.ok()) return refuse(hello.status());
  if (hello->build != options_.build) {
    return refuse(FailedPrecondition("expected ptpathways " + options_.build + " as on the controller, got " +
                                     hello->build + " on " + Quoted(hello->name) +
                                     "; install the same version on both"));
  }
  wire::Welcome welcome;
  welcome.cluster = options_.cluster;
  welcome.heartbeat_interval_ms = options_.heartbeat_interval_ms;
  welcome.heartbeat_timeout_ms = options_.heartbeat_timeout_ms;

  if (hello->role == wire::Role::kClient) {
    if (next_client_ >= (1u << 15))
      return refuse(ResourceExhausted("this controller has served 32767 clients; restart it"));
    const uint32_t index = next_client_++;
    clients_[index] = Client{from, hello->name, {}, {}};
    peers_[from] = Peer{wire::Role::kClient, index, now_ms};
    welcome.peer = index;
    welcome.hosts = HostDescriptions();
    return Send(from, welcome, out);
  }
  if (hello->role != wire::Role::kWorker) return refuse(InvalidArgument("expected role client or worker"));
  if (hello->devices.empty()) return refuse(InvalidArgument("expected a host with at least one device, got none"));
  for (const Host& host : hosts_) {
    if (host.description.alive && host.description.name == hello->name) {
      return refuse(Status(Code::kAlreadyExists, "a host named " + Quoted(hello->name) +
                                                     " is already a member; give each worker its own --name"));
    }
  }
  if (MustWaitItsTurn(hello->name)) {
    waiting_hosts_[hello->name] = {from, std::string(body)};
    return;
  }
  if (expected_joined_ < options_.expected_hosts.size() && options_.expected_hosts[expected_joined_] == hello->name) {
    ++expected_joined_;
  }
  Host host;
  host.connection = from;
  wire::HostDescription& description = host.description;
  description.host = static_cast<uint32_t>(hosts_.size());
  description.name = hello->name;
  description.machine = hello->machine;
  description.data_endpoint = hello->data_endpoint;
  description.platform = hello->platform;
  description.platform_version = hello->platform_version;
  description.island = hello->island.empty() ? hello->name : hello->island;
  description.pid = hello->pid;
  description.first_device = static_cast<uint32_t>(device_to_host_.size());
  description.devices = std::move(hello->devices);
  device_to_host_.insert(device_to_host_.end(), description.devices.size(), description.host);
  peers_[from] = Peer{wire::Role::kWorker, description.host, now_ms};
  welcome.peer = description.host;
  islands_.try_emplace(description.island);
  resources_.AddHost(description);
  hosts_.push_back(std::move(host));
  welcome.hosts = HostDescriptions();
  Send(from, welcome, out);
  wire::Topology topology{HostDescriptions()};
  for (const auto& [index, client] : clients_) Send(client.connection, topology, out);
  for (const Host& other : hosts_) {
    if (other.description.alive && other.connection != from) Send(other.connection, topology, out);
  }
  AdmitWaiting(now_ms, out);
}

bool ClusterState::MustWaitItsTurn(const std::string& name) const {
  const std::vector<std::string>& expected = options_.expected_hosts;
  for (size_t i = expected_joined_ + 1; i < expected.size(); ++i) {
    if (expected[i] == name) return true;
  }
  return false;
}

void ClusterState::AdmitWaiting(uint64_t now_ms, Outputs& out) {
  if (expected_joined_ >= options_.expected_hosts.size()) return;
  auto next = waiting_hosts_.extract(options_.expected_hosts[expected_joined_]);
  if (!next.empty()) OnHello(next.mapped().first, next.mapped().second, now_ms, out);
}

void ClusterState::OnClientMessage(uint32_t client, const wire::Head& head, std::string&& frame,
                                   std::vector<Payload>&& payloads, Outputs& out) {
  Client& state = clients_.at(client);
  // Compiles and questions need no order among runs; all else keeps its place behind what waits.
  const bool overtakes = head.header.type == Type::kRegister || head.header.type == Type::kQuery ||
                         head.header.type == Type::kRequestSlice || head.header.type == Type::kReleaseSlice;
  if (overtakes || state.held.empty()) {
    Result<Outcome> outcome = HandleClient(client, head, frame, payloads, out);
    if (!outcome.ok()) {
      Note("client " + state.name + ": " + outcome.status().ToString());
      Send(state.connection, wire::Reject{outcome.status()}, out);
      return;
    }
    if (*outcome == Outcome::kHandled) return;
  }
  auto held = std::make_unique<Held>();
  held->frame = std::move(frame);
  held->payloads = std::move(payloads);
  held->head = *wire::DecodeHead(held->frame);  // decoded before; only re-pointed at the kept frame
  state.held.push_back(std::move(held));
}

void ClusterState::ReleaseHeld(uint32_t client, Outputs& out) {
  auto it = clients_.find(client);
  if (it == clients_.end()) return;
  std::deque<std::unique_ptr<Held>>& held = it->second.held;
  while (!held.empty()) {
    Held& front = *held.front();
    Result<Outcome> outcome = HandleClient(client, front.head, front.frame, front.payloads, out);
    if (outcome.ok() && *outcome == Outcome::kMustWait) return;
    if (!outcome.ok()) Send(it->second.connection, wire::Reject{outcome.status()}, out);
    held.pop_front();
  }
}

Result<ClusterState::Outcome> ClusterState::HandleClient(uint32_t client, const wire::Head& head, std::string& frame,
                                                         std::vector<Payload>& payloads, Outputs& out) {
  switch (head.header.type) {
    case Type::kRun:
      return HandleRun(client, head, frame, payloads, out);
    case Type::kRegister:
      PW_RETURN_IF_ERROR(HandleRegister(client, head, frame, payloads, out));
      return Outcome::kHandled;
    case Type::kCopy:
      PW_RETURN_IF_ERROR(HandleCopy(client, head, frame, out));
      return Outcome::kHandled;
    case Type::kRequestSlice:
      PW_RETURN_IF_ERROR(HandleRequestSlice(client, head, out));
      return Outcome::kHandled;
    case Type::kReleaseSlice:
      PW_RETURN_IF_ERROR(HandleReleaseSlice(client, head));
      return Outcome::kHandled;
    case Type::kPut: {
      PW_ASSIGN_OR_RETURN(wire::Put put, DecodeBody<wire::Put>(head));
      PW_RETURN_IF_ERROR(CheckOwner(client, put.buffer, "buffer"));
      PW_ASSIGN_OR_RETURN(Host * host, HostOfDevice(put.device));
      if (!host->description.alive) {
        Send(clients_.at(client).connection, wire::BufferFailed{put.buffer, Unavailable(host->lost_reason)}, out);
      } else {
        out.push_back({host->connection, std::move(frame), std::move(payloads)});
      }
      return Outcome::kHandled;
    }
    case Type::kFetch: {
      PW_ASSIGN_OR_RETURN(wire::Fetch fetch, DecodeBody<wire::Fetch>(head));
      PW_RETURN_IF_ERROR(CheckOwner(client, fetch.buffer, "buffer"));
      PW_ASSIGN_OR_RETURN(Host * host, HostOfDevice(fetch.device));
      if (!host->description.alive) {
        Send(clients_.at(client).connection, wire::Fetched{fetch.request, Unavailable(host->lost_reason), 0, {}}, out);
      } else {
        out.push_back({host->connection, std::move(frame), {}});
      }
      return Outcome::kHandled;
    }
    case Type::kFree: {
      PW_ASSIGN_OR_RETURN(wire::Free free, DecodeBody<wire::Free>(head));
      for (uint64_t id : free.buffers) PW_RETURN_IF_ERROR(CheckOwner(client, id, "buffer"));
      if (free.host >= hosts_.size()) return InvalidArgument("FREE names host " + std::to_string(free.host));
      if (hosts_[free.host].description.alive) out.push_back({hosts_[free.host].connection, std::move(frame), {}});
      return Outcome::kHandled;
    }
    case Type::kUnregister: {
      PW_ASSIGN_OR_RETURN(wire::Unregister request, DecodeBody<wire::Unregister>(head));
      std::map<uint32_t, wire::Unregister> per_host;
      for (uint64_t id : request.functions) {
        PW_RETURN_IF_ERROR(CheckOwner(client, id, "function"));
        auto node = clients_.at(client).functions.extract(id);
        if (node.empty()) continue;
        for (const auto& [host, state] : node.mapped().hosts) per_host[host].functions.push_back(id);
      }
      for (const auto& [host, message] : per_host) {
        if (hosts_[host].description.alive) Send(hosts_[host].connection, message, out);
      }
      return Outcome::kHandled;
    }
    case Type::kQuery: {
      PW_ASSIGN_OR_RETURN(wire::Query query, DecodeBody<wire::Query>(head));
      PW_ASSIGN_OR_RETURN(Host * host, HostOfDevice(query.device));
      if (!host->description.alive) {
        Send(clients_.at(client).connection, wire::Reply{query.request, Unavailable(host->lost_reason), {}, {}}, out);
      } else {
        out.push_back({host->connection, std::move(frame), {}});
      }
      return Outcome::kHandled;
    }
    default:
      return InvalidArgument("a client may not send " + std::string(wire::TypeName(head.header.type)));
  }
}

Status ClusterState::HandleRegister(uint32_t client, const wire::Head& head, std::string& frame,
                                    std::vector<Payload>& payloads, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::Register request, DecodeBody<wire::Register>(head));
  PW_RETURN_IF_ERROR(CheckOwner(client, request.function, "function"));
  if (request.devices.empty()) return InvalidArgument("REGISTER names no device");
  FunctionState& function = clients_.at(client).functions[request.function];
  function.name = request.name;
  for (uint32_t device : request.devices) {
    PW_ASSIGN_OR_RETURN(Host * host, HostOfDevice(device));
    const uint32_t index = host->description.host;
    if (!host->description.alive) {
      function.hosts[index] = Compile::kFailed;
      wire::Registered answer;
      answer.function = request.function;
      answer.host = index;
      answer.status = Unavailable(host->lost_reason);
      Send(clients_.at(client).connection, answer, out);
      continue;
    }
    if (!function.hosts.try_emplace(index, Compile::kPending).second) continue;
    out.push_back({host->connection, frame, payloads});
  }
  return OkStatus();
}

Result<ClusterState::Outcome> ClusterState::HandleRun(uint32_t client, const wire::Head& head, std::string& frame,
                                                      std::vector<Payload>& payloads, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::Run run, DecodeBody<wire::Run>(head));
  PW_RETURN_IF_ERROR(CheckRun(client, run));
  Client& owner = clients_.at(client);
  auto fail = [&](Status status) {
    wire::Done done;
    done.outcomes.push_back({run.run, 0, 0, std::move(status)});
    Send(owner.connection, done, out);
    return Outcome::kHandled;
  };
  if (run.devices.empty()) return fail(InvalidArgument("a run needs at least one device, got none"));
  Host* host = nullptr;
  for (uint32_t device : run.devices) {
    PW_ASSIGN_OR_RETURN(Host * here, HostOfDevice(device));
    if (host != nullptr && here != host) {
      return fail(Unimplemented("one computation over the devices of hosts " + Quoted(host->description.name) +
                                " and " + Quoted(here->description.name) +
                                " needs an island that spans hosts; here each host is an island of its own"));
    }
    host = here;
  }
  if (!host->description.alive) return fail(Unavailable(host->lost_reason));
  auto function = owner.functions.find(run.function);
  if (function == owner.functions.end()) {
    return fail(NotFound("function " + std::to_string(run.function) + " is not registered"));
  }
  auto compiled = function->second.hosts.find(host->description.host);
  if (compiled == function->second.hosts.end()) {
    return fail(NotFound("function " + Quoted(function->second.name) + " is not registered on host " +
                         Quoted(host->description.name)));
  }
  if (compiled->second == Compile::kPending) return Outcome::kMustWait;
  Result<uint64_t> sequence = Island(*host).Submit({run.run, client, 1});
  if (!sequence.ok()) return fail(sequence.status());
  wire::PatchSequence(frame, *sequence);
  out.push_back({host->connection, std::move(frame), std::move(payloads)});
  return Outcome::kHandled;
}

Status ClusterState::HandleCopy(uint32_t client, const wire::Head& head, std::string& frame, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::Copy copy, DecodeBody<wire::Copy>(head));
  PW_RETURN_IF_ERROR(CheckOwner(client, copy.source, "buffer"));
  PW_RETURN_IF_ERROR(CheckOwner(client, copy.destination, "buffer"));
  PW_ASSIGN_OR_RETURN(Host * from, HostOfDevice(copy.source_device));
  PW_ASSIGN_OR_RETURN(Host * to, HostOfDevice(copy.destination_device));
  for (Host* host : {from, to}) {
    if (host->description.alive) continue;
    Send(clients_.at(client).connection, wire::BufferFailed{copy.destination, Unavailable(host->lost_reason)}, out);
    return OkStatus();
  }
  if (from != to) {
    Send(to->connection, wire::Expect{copy.destination, copy.destination_device, from->description.host, copy.type},
         out);
  }
  out.push_back({from->connection, std::move(frame), {}});
  return OkStatus();
}

Status ClusterState::OnWorkerMessage(uint32_t host, const wire::Head& head, std::string& frame,
                                     std::vector<Payload>& payloads, Outputs& out) {
  Host& state = hosts_[host];
  switch (head.header.type) {
    case Type::kHeartbeat: {
      PW_ASSIGN_OR_RETURN(state.load, DecodeBody<wire::Heartbeat>(head));
      return OkStatus();
    }
    case Type::kGoodbye: {
      PW_ASSIGN_OR_RETURN(wire::Goodbye goodbye, DecodeBody<wire::Goodbye>(head));
      LoseHost(host, goodbye.reason, out);
      return OkStatus();
    }
    case Type::kDone: {
      PW_ASSIGN_OR_RETURN(wire::Done done, DecodeBody<wire::Done>(head));
      scheduler::IslandScheduler& island = Island(state);
      bool one_client = true;
      for (const wire::RunOutcome& outcome : done.outcomes) {
        island.PartDone(outcome.run, static_cast<double>(outcome.device_us) * 1e-6);
        one_client = one_client && wire::ClientOf(outcome.run) == wire::ClientOf(done.outcomes.front().run);
      }
      if (done.outcomes.empty()) return OkStatus();
      if (one_client) {  // the usual case: pass the bytes on as they are
        ToClient(done.outcomes.front().run, std::move(frame), {}, out);
        return OkStatus();
      }
      std::map<uint64_t, wire::Done> per_client;
      for (wire::RunOutcome& outcome : done.outcomes) {
        per_client[wire::ClientOf(outcome.run)].outcomes.push_back(std::move(outcome));
      }
      for (const auto& [client, message] : per_client) {
        ToClient(message.outcomes.front().run, wire::Encode(message), {}, out);
      }
      return OkStatus();
    }
    case Type::kRegistered: {
      PW_ASSIGN_OR_RETURN(wire::Registered answer, DecodeBody<wire::Registered>(head));
      const uint32_t client = static_cast<uint32_t>(wire::ClientOf(answer.function));
      auto owner = clients_.find(client);
      if (owner == clients_.end()) return OkStatus();
      auto function = owner->second.functions.find(answer.function);
      if (function != owner->second.functions.end()) {
        function->second.hosts[host] = answer.status.ok() ? Compile::kReady : Compile::kFailed;
      }
      ToClient(answer.function, std::move(frame), {}, out);
      ReleaseHeld(client, out);
      return OkStatus();
    }
    case Type::kFetched: {
      PW_ASSIGN_OR_RETURN(wire::Fetched answer, DecodeBody<wire::Fetched>(head));
      ToClient(answer.request, std::move(frame), {}, out);
      return OkStatus();
    }
    case Type::kBufferFailed: {
      PW_ASSIGN_OR_RETURN(wire::BufferFailed failed, DecodeBody<wire::BufferFailed>(head));
      ToClient(failed.buffer, std::move(frame), {}, out);
      return OkStatus();
    }
    case Type::kReply: {
      PW_ASSIGN_OR_RETURN(wire::Reply reply, DecodeBody<wire::Reply>(head));
      ToClient(reply.request, std::move(frame), std::move(payloads), out);
      return OkStatus();
    }
    default:
      return InvalidArgument("a worker may not send " + std::string(wire::TypeName(head.header.type)));
  }
}

void ClusterState::ToClient(uint64_t id, std::string frame, std::vector<Payload> payloads, Outputs& out) {
  auto client = clients_.find(static_cast<uint32_t>(wire::ClientOf(id)));
  if (client != clients_.end()) out.push_back({client->second.connection, std::move(frame), std::move(payloads)});
}

void ClusterState::OnDisconnected(const Connection& from, const std::string& reason, Outputs& out) {
  std::erase_if(waiting_hosts_, [&from](const auto& entry) { return entry.second.first == from; });
  auto peer = peers_.find(from);
  if (peer == peers_.end()) return;
  if (peer->second.role == wire::Role::kClient) {
    LoseClient(peer->second.index, out);
  } else {
    LoseHost(peer->second.index, reason, out);
  }
}

void ClusterState::OnHostExited(const std::string& name, const std::string& reason, Outputs& out) {
  for (const Host& host : hosts_) {
    if (host.description.alive && host.description.name == name) return LoseHost(host.description.host, reason, out);
  }
}

void ClusterState::LoseHost(uint32_t index, const std::string& reason, Outputs& out) {
  Host& host = hosts_[index];
  if (!host.description.alive) return;
  host.description.alive = 0;
  host.lost_reason = "host " + Quoted(host.description.name) + " (host " + std::to_string(index) + ", pid " +
                     std::to_string(host.description.pid) + ") is lost: " + reason;
  Note(host.lost_reason);
  peers_.erase(host.connection);
  resources_.RemoveHost(index);
  const wire::HostLost lost{index, host.lost_reason};
  for (const Host& other : hosts_) {
    if (other.description.alive) Send(other.connection, lost, out);
  }
  for (auto& [client_index, client] : clients_) {
    Send(client.connection, lost, out);
    for (auto& [id, function] : client.functions) {
      auto compiled = function.hosts.find(index);
      if (compiled == function.hosts.end() || compiled->second != Compile::kPending) continue;
      compiled->second = Compile::kFailed;
      wire::Registered answer;
      answer.function = id;
      answer.host = index;
      answer.status = Unavailable(host.lost_reason);
      Send(client.connection, answer, out);
    }
  }
  std::vector<uint32_t> indices;
  for (const auto& [client_index, client] : clients_) indices.push_back(client_index);
  for (uint32_t client_index : indices) ReleaseHeld(client_index, out);
}

void ClusterState::LoseClient(uint32_t index, Outputs& out) {
  auto client = clients_.find(index);
  if (client == clients_.end()) return;
  Note("client " + Quoted(client->second.name) + " is gone; its buffers and functions are collected");
  peers_.erase(client->second.connection);
  clients_.erase(client);
  resources_.DropClient(index);
  for (auto& [name, island] : islands_) island.DropClient(index);
  for (const Host& host : hosts_) {
    if (host.description.alive) Send(host.connection, wire::OwnerGone{index}, out);
  }
}

void ClusterState::OnTick(uint64_t now_ms, Outputs& out) {
  if (now_ms < last_tick_ms_ + options_.heartbeat_interval_ms) return;
  // A controller that was itself suspended must not blame its peers for the silence.
  const bool was_suspended = last_tick_ms_ != 0 && now_ms > last_tick_ms_ + options_.heartbeat_timeout_ms / 2;
  last_tick_ms_ = now_ms;
  std::vector<std::pair<Connection, uint64_t>> silent;
  for (auto& [connection, peer] : peers_) {
    if (connection.starts_with("local/")) continue;
    if (was_suspended) peer.last_heard_ms = now_ms;
    if (now_ms > peer.last_heard_ms + options_.heartbeat_timeout_ms) {
      silent.emplace_back(connection, now_ms - peer.last_heard_ms);
    } else {
      Send(connection, wire::Heartbeat{}, out);
    }
  }
  for (const auto& [connection, silence_ms] : silent) {
    OnDisconnected(connection, "nothing was heard of it for " + std::to_string(silence_ms) + " ms", out);
  }
}

Outputs ClusterState::Farewell(const std::string& reason) const {
  Outputs out;
  for (const auto& [connection, peer] : peers_) out.push_back({connection, wire::Encode(wire::Goodbye{reason}), {}});
  return out;
}

uint32_t ClusterState::live_host_count() const {
  return static_cast<uint32_t>(
      std::count_if(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.description.alive != 0; }));
}

std::vector<wire::HostDescription> ClusterState::HostDescriptions() const {
  std::vector<wire::HostDescription> descriptions;
  descriptions.reserve(hosts_.size());
  for (const Host& host : hosts_) descriptions.push_back(host.description);
  return descriptions;
}

Result<ClusterState::Host*> ClusterState::HostOfDevice(uint32_t device) {
  if (device >= device_to_host_.size()) {
    return InvalidArgument("expected a device below " + std::to_string(device_to_host_.size()) + ", got " +
                           std::to_string(device));
  }
  return &hosts_[device_to_host_[device]];
}

Status ClusterState::CheckOwner(uint32_t client, uint64_t id, const char* what) const {
  if (wire::ClientOf(id) == client) return OkStatus();
  return Status(Code::kPermissionDenied, std::string("expected a ") + what + " of client " + std::to_string(client) +
                                             ", got one of client " + std::to_string(wire::ClientOf(id)));
}

Status ClusterState::CheckRun(uint32_t client, const wire::Run& run) const {
  PW_RETURN_IF_ERROR(CheckOwner(client, run.run, "run"));
  PW_RETURN_IF_ERROR(CheckOwner(client, run.first_output, "buffer"));
  if (run.output_count > wire::kMaxRunOutputs) {
    return InvalidArgument("expected a run with at most " + std::to_string(wire::kMaxRunOutputs) + " outputs, got " +
                           std::to_string(run.output_count));
  }
  PW_RETURN_IF_ERROR(CheckOwner(client, run.first_output + run.output_count, "buffer"));
  for (const uint64_t argument : run.arguments) {
    if (!(argument & wire::kAssembledBit)) PW_RETURN_IF_ERROR(CheckOwner(client, argument, "buffer"));
  }
  for (size_t i = 0; i < run.assembled.size(); i += 2) {
    PW_RETURN_IF_ERROR(CheckOwner(client, run.assembled[i], "buffer"));
  }
  return OkStatus();
}

std::vector<std::string> ClusterState::TakeLog() { return std::exchange(log_, {}); }

}  // namespace pathways::controller
