// Session::Impl: opening the session, and what arrives.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "csrc/client/session_impl.h"
#include "csrc/transport/shm.h"

namespace pathways::client {

using wire::Type;

Status Session::Impl::Open(const std::function<Status()>& still_wanted) {
  PW_ASSIGN_OR_RETURN(
      link, options.link([this](std::string head,
                                std::vector<Payload> payloads) { OnMessage(std::move(head), std::move(payloads)); },
                         [this](Status status) { OnControllerLost(status); }));
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = options.build;
  hello.name = options.name;
  hello.pid = static_cast<uint64_t>(getpid());
  hello.machine = transport::MachineToken();
  hello.weight = options.weight;
  hello.priority = options.priority;
  PW_RETURN_IF_ERROR(link->Join(hello));
  PW_RETURN_IF_ERROR(AwaitWelcome(still_wanted));
  dataplane::DataPlaneOptions data_options;
  data_options.membership = membership;
  data_options.machine = hello.machine;
  data_options.curve = options.keys.Curve(transport::Role::kWorker);
  data_options.transfer_timeout = options.transfer_timeout;
  PW_ASSIGN_OR_RETURN(data_owner, dataplane::DataPlane::Start(data_options, this));
  std::vector<wire::HostDescription> known;  // what comes from now on is connected to as it comes
  {
    std::lock_guard lock(mutex);
    data = data_owner.get();
    known = hosts;
    if (rotated_keys) data_owner->Rotate(rotated_keys->Curve(transport::Role::kWorker));
  }
  ConnectToHosts(known);
  data_owner->Every(std::chrono::milliseconds(heartbeat_interval_ms), [this] {
    if (!closed) link->Beat();
  });
  data_owner->Every(std::chrono::milliseconds(20), [this] { FlushFrees(); });
  return OkStatus();
}

Status Session::Impl::AwaitWelcome(const std::function<Status()>& still_wanted) {
  const auto deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  for (;;) {
    const auto left = deadline - std::chrono::steady_clock::now();
    const auto slice = std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), kInterruptSlice);
    if (std::optional<Status> answer = welcomed->WaitFor(slice)) return *answer;
    if (left <= slice) break;
    if (still_wanted) PW_RETURN_IF_ERROR(still_wanted());
  }
  return Unavailable("expected an answer from the controller at " + options.controller + " within " +
                     std::to_string(options.connect_timeout.count() / 1000.0).substr(0, 5) +
                     " s, got none; check the address, and that `ptpathways controller` runs there");
}

void Session::Impl::OnMessage(std::string frame, std::vector<Payload> payloads) {
  const InCallback in_callback;
  Status status = [&]() -> Status {
    PW_ASSIGN_OR_RETURN(wire::Head head, wire::DecodeHead(frame));
    return Handle(head, payloads);
  }();
  if (status.ok()) return;
  if (!welcomed->Set(status)) {
    std::fprintf(stderr, "ptpathways: refused a message of the controller: %s\n", status.ToString().c_str());
  }
}

Status Session::Impl::Handle(const wire::Head& head, std::vector<Payload>& payloads) {
  switch (head.header.type) {
    case Type::kDone: {
      PW_ASSIGN_OR_RETURN(wire::Done done, wire::Decode<wire::Done>(head.body));
      OnDone(done);
      return OkStatus();
    }
    case Type::kFetched: {
      PW_ASSIGN_OR_RETURN(wire::Fetched answer, wire::Decode<wire::Fetched>(head.body));
      PW_RETURN_IF_ERROR(CheckAnswer(answer.request, head.header.sequence));
      OnFetched(answer);
      return OkStatus();
    }
    case Type::kRegistered: {
      PW_ASSIGN_OR_RETURN(wire::Registered answer, wire::Decode<wire::Registered>(head.body));
      OnRegistered(answer);
      return OkStatus();
    }
    case Type::kPlanReady: {
      PW_ASSIGN_OR_RETURN(wire::PlanReady answer, wire::Decode<wire::PlanReady>(head.body));
      OnPlanReady(answer);
      return OkStatus();
    }
    case Type::kSliceGranted: {
      PW_ASSIGN_OR_RETURN(wire::SliceGranted answer, wire::Decode<wire::SliceGranted>(head.body));
      OnSliceGranted(answer);
      return OkStatus();
    }
    case Type::kStored: {
      PW_ASSIGN_OR_RETURN(wire::Stored answer, wire::Decode<wire::Stored>(head.body));
      PW_RETURN_IF_ERROR(CheckAnswer(answer.request, head.header.sequence));
      OnStored(answer);
      return OkStatus();
    }
    case Type::kReply: {
      PW_ASSIGN_OR_RETURN(wire::Reply reply, wire::Decode<wire::Reply>(head.body));
      PW_RETURN_IF_ERROR(CheckAnswer(reply.request, head.header.sequence));
      OnReply(reply, payloads);
      return OkStatus();
    }
    case Type::kBufferFailed: {
      PW_ASSIGN_OR_RETURN(wire::BufferFailed failed, wire::Decode<wire::BufferFailed>(head.body));
      std::lock_guard lock(mutex);
      failed_buffers[failed.buffer] = failed.status;
      return OkStatus();
    }
    case Type::kHostLost: {
      PW_ASSIGN_OR_RETURN(wire::HostLost lost, wire::Decode<wire::HostLost>(head.body));
      OnHostLost(lost);
      return OkStatus();
    }
    case Type::kTopology: {
      PW_ASSIGN_OR_RETURN(wire::Topology topology, wire::Decode<wire::Topology>(head.body));
      OnHosts(std::move(topology.hosts), topology.identities);
      return OkStatus();
    }
    case Type::kWelcome: {
      PW_ASSIGN_OR_RETURN(wire::Welcome welcome, wire::Decode<wire::Welcome>(head.body));
      cluster = welcome.cluster;
      client_index = welcome.peer;
      heartbeat_interval_ms = welcome.heartbeat_interval_ms;
      membership = {welcome.cluster, "", "", welcome.session};
      // A number that a client had before us is given again after all others; our ids are not those of its last ones.
      next_id = (static_cast<uint64_t>(client_index) << wire::kClientShift) + wire::FirstIdOf(welcome.session);
      OnHosts(std::move(welcome.hosts), welcome.identities);
      welcomed->Set(OkStatus());
      return OkStatus();
    }
    case Type::kReject: {
      PW_ASSIGN_OR_RETURN(wire::Reject reject, wire::Decode<wire::Reject>(head.body));
      if (welcomed->Set(reject.status.WithPrefix("the controller at " + options.controller + " refused this client"))) {
        return OkStatus();
      }
      OnControllerLost(reject.status.WithPrefix("the controller refused a message"));
      return OkStatus();
    }
    case Type::kGoodbye: {
      PW_ASSIGN_OR_RETURN(wire::Goodbye goodbye, wire::Decode<wire::Goodbye>(head.body));
      OnControllerLost(Unavailable("the controller has ended: " + goodbye.reason));
      return OkStatus();
    }
    case Type::kRotate: {
      PW_ASSIGN_OR_RETURN(const wire::Rotate rotate, wire::Decode<wire::Rotate>(head.body));
      PW_ASSIGN_OR_RETURN(const auto keys, transport::KeysOfToken(rotate.token, transport::Role::kClient));
      link->Rotate(keys.Curve(transport::Role::kController));
      std::lock_guard lock(mutex);
      rotated_keys = keys;
      if (dataplane::DataPlane* const plane = data) plane->Rotate(keys.Curve(transport::Role::kWorker));
      return OkStatus();
    }
    case Type::kHeartbeat:
      return OkStatus();
    default:
      return InvalidArgument("a client does not take " + std::string(wire::TypeName(head.header.type)));
  }
}

Status Session::Impl::CheckAnswer(uint64_t request, uint64_t from) const {
  std::lock_guard lock(mutex);
  std::optional<uint32_t> asked = fetches.HostOf(request);
  if (const auto query = queries.find(request); query != queries.end()) asked = query->second.host;
  if (const auto file = files.find(request); file != files.end()) asked = file->second.host;
  if (!asked || from == 0 || from == uint64_t{*asked} + 1) return OkStatus();
  return Status(Code::kPermissionDenied, "host " + std::to_string(from - 1) +
                                             " answered what another was asked (host " + std::to_string(*asked) + ")");
}

void Session::Impl::OnDone(const wire::Done& done) {
  std::vector<std::pair<std::shared_ptr<Event>, const Status*>> finished;
  finished.reserve(done.outcomes.size());
  {
    std::lock_guard lock(mutex);
    for (const wire::RunOutcome& outcome : done.outcomes) {
      // One outcome a run: the controller waits for all parts of a gang, or tells of the first that failed.
      auto node = runs.extract(outcome.run);
      if (!node.empty()) finished.emplace_back(std::move(node.mapped().done), &outcome.status);
    }
  }
  changed.notify_all();
  for (auto& [event, status] : finished) event->Set(*status);
}

void Session::Impl::OnFetched(const wire::Fetched& answer) {
  std::shared_ptr<Event> event;
  Status status = answer.status;
  {
    std::lock_guard lock(mutex);
    std::optional<PendingFetch> fetch = fetches.Take(answer.request, status);
    if (!fetch) return;
    event = std::move(fetch->done);
    const bool no_values = hosts[fetch->host].data_endpoint.empty();
    if (status.ok() && fetch->destination != nullptr && no_values && answer.size == fetch->size) {
      std::memset(fetch->destination, 0, fetch->size);
      fetched += fetch->size;
    } else if (status.ok() && fetch->destination != nullptr) {
      if (answer.inline_data.size() != fetch->size) {
        status = DataLoss("expected " + std::to_string(fetch->size) + " bytes of a tensor, got " +
                          std::to_string(answer.inline_data.size()));
      } else if (fetch->size > 0) {
        std::memcpy(fetch->destination, answer.inline_data.data(), fetch->size);
        fetched += fetch->size;
      }
    }
  }
  event->Set(status);
}

void Session::Impl::OnBytes(std::string_view, uint64_t key, uint64_t offset, uint64_t total,
                            std::span<const std::byte> bytes, transport::BulkLease lease) {
  const InCallback in_callback;
  char* destination = nullptr;
  {
    std::lock_guard lock(mutex);
    destination = fetches.StartWrite(key, offset, bytes.size(), total);
  }
  if (destination == nullptr) {
    lease.Drop(NotFound("nobody waits for these bytes"));
    return;
  }
  if (!bytes.empty()) std::memcpy(destination, bytes.data(), bytes.size());
  lease.Drop();
  fetched += bytes.size();
  std::optional<Fetches::Ended> ended;
  {
    std::lock_guard lock(mutex);
    ended = fetches.EndWrite(key, bytes.size());
  }
  if (ended) ended->first->Set(ended->second);
}

Status Session::Impl::MaySend(std::string_view peer, uint64_t key) const {
  std::lock_guard lock(mutex);
  const std::optional<uint32_t> asked = fetches.HostOf(key);
  if (!asked || peer == dataplane::DataPlane::PeerOfHost(hosts[*asked].name)) return OkStatus();
  return Status(Code::kPermissionDenied, "bytes of a fetch must come from the host that was asked");
}

void Session::Impl::OnTransferFailed(std::string_view, uint64_t key, const Status& status) {
  const InCallback in_callback;
  wire::Fetched answer;
  answer.request = key;
  answer.status = status.ok() ? Unavailable("the transfer failed") : status;
  OnFetched(answer);
}

// The host waits for bytes that it will not get; the controller can still reach it.
void Session::Impl::OnSendFailed(const std::string& peer, uint64_t key, const Status& status) {
  std::optional<uint32_t> host;
  {
    std::lock_guard lock(mutex);
    for (const wire::HostDescription& candidate : hosts) {
      if (peer == dataplane::DataPlane::PeerOfHost(candidate.name) && candidate.alive) host = candidate.host;
    }
  }
  if (host) (void)Send(wire::TransferFailed{*host, key, status});
}

void Session::Impl::OnRegistered(const wire::Registered& answer) {
  std::shared_ptr<Event> event;
  Status status;
  {
    std::lock_guard lock(mutex);
    code_room = std::min(code_room, answer.code_room);
    auto it = functions.find(answer.function);
    if (it == functions.end()) return;
    PendingFunction& function = it->second;
    function.waiting_for.erase(answer.host);
    if (!answer.status.ok() && function.first_error.ok()) function.first_error = answer.status;
    if (function.outputs.empty()) {
      function.outputs = answer.outputs;
      function.output_sharding = answer.output_sharding;
    }
    if (!function.waiting_for.empty()) return;
    event = function.compiled;
    status = function.first_error;
  }
  event->Set(status);
}

void Session::Impl::OnReply(const wire::Reply& reply, std::vector<Payload>& payloads) {
  std::shared_ptr<Event> event;
  {
    std::lock_guard lock(mutex);
    auto node = queries.extract(reply.request);
    if (node.empty()) return;
    event = node.mapped().done;
    QueryAnswer& answer = *node.mapped().answer;
    answer.format = reply.format;
    answer.properties = reply.properties;
    if (!payloads.empty()) answer.payload = *payloads[0];
  }
  event->Set(reply.status);
}

void Session::Impl::ConnectToHosts(const std::vector<wire::HostDescription>& now) {
  dataplane::DataPlane* const plane = data;
  if (plane == nullptr) return;
  for (const wire::HostDescription& host : now) {
    if (!host.alive || host.data_endpoint.empty()) continue;  // a host without values has nothing to move
    {
      std::lock_guard lock(mutex);
      if (const auto known = identities.find(host.host); known != identities.end()) {
        plane->SetIdentityAt(host.name, known->second);
      }
    }
    if (Status status = plane->ConnectTo(host.name, host.data_endpoint, host.machine, host.session);
        !status.ok() && !closed) {
      std::fprintf(stderr, "ptpathways: cannot reach host %s: %s\n", host.name.c_str(), status.ToString().c_str());
    }
  }
}

void Session::Impl::OnHosts(std::vector<wire::HostDescription> now, const std::vector<wire::IdentityAt>& told) {
  {
    std::lock_guard lock(mutex);
    for (const wire::IdentityAt& at : told) identities[at.host] = at.identity;
    if (now.size() < hosts.size()) return;
    // A host that is lost stays so, whatever was written before that was known.
    for (size_t i = 0; i < lost_reasons.size(); ++i) {
      if (!lost_reasons[i].empty()) now[i].alive = 0;
    }
    hosts = now;
    lost_reasons.resize(hosts.size());
    device_to_host.clear();
    for (const wire::HostDescription& host : hosts) {
      device_to_host.insert(device_to_host.end(), host.devices.size(), host.host);
    }
  }
  ConnectToHosts(now);
}

template <typename Predicate>
void Session::Impl::FailPending(Predicate predicate, const Status& status) {
  std::vector<std::pair<std::shared_ptr<Event>, Status>> failed;
  {
    std::lock_guard lock(mutex);
    std::erase_if(runs, [&](auto& entry) {
      const PendingRun& run = entry.second;
      const bool concerned =
          run.hosts ? std::any_of(run.hosts->begin(), run.hosts->end(), predicate) : predicate(run.host);
      if (!concerned) return false;
      failed.emplace_back(run.done, status.WithPrefix(*run.what + " did not finish"));
      return true;
    });
    const auto take = [&](auto& entry) {
      if (!predicate(entry.second.host)) return false;
      failed.emplace_back(entry.second.done, status);
      return true;
    };
    fetches.Fail(predicate, status, failed);
    std::erase_if(queries, take);
    std::erase_if(files, take);
    for (auto& [id, function] : functions) {
      if (std::erase_if(function.waiting_for, predicate) > 0) failed.emplace_back(function.compiled, status);
    }
    for (auto& [id, program] : programs) {
      if (std::erase_if(program.waiting_for, predicate) > 0) failed.emplace_back(program.ready, status);
    }
    if (!controller_lost.ok()) {
      for (auto& [id, slice] : slices) failed.emplace_back(slice.done, status);
      slices.clear();
    }
  }
  changed.notify_all();
  for (const auto& [event, reason] : failed) event->Set(reason);
}

void Session::Impl::OnHostLost(const wire::HostLost& lost) {
  std::string name;
  {
    std::lock_guard lock(mutex);
    if (lost.host >= hosts.size()) return;
    hosts[lost.host].alive = 0;
    lost_reasons[lost.host] = lost.reason;
    name = hosts[lost.host].name;
  }
  const Status status = Unavailable(lost.reason);
  if (dataplane::DataPlane* const plane = data) plane->PeerLost(dataplane::DataPlane::PeerOfHost(name), status);
  FailPending([&lost](uint32_t host) { return host == lost.host; }, status);
}

void Session::Impl::OnControllerLost(const Status& reason) {
  const InCallback in_callback;
  if (closed) return;
  // Not UNAVAILABLE: by that a wait says that a host is lost.
  const std::string at = options.controller.empty() ? "" : " at " + options.controller;
  const Status status =
      Cancelled("no connection to the controller" + at + " any more: " + std::string(reason.message()));
  {
    std::lock_guard lock(mutex);
    if (!controller_lost.ok()) return;
    controller_lost = status;
  }
  welcomed->Set(reason);
  FailPending([](uint32_t) { return true; }, status);
}

}  // namespace pathways::client
