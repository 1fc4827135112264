#include "csrc/sim/virtual_cluster.h"

#include <algorithm>

namespace pathways::sim {
namespace {

uint64_t Milliseconds(int64_t ns) { return static_cast<uint64_t>(ns / 1'000'000) + 1; }

}  // namespace

VirtualCluster::VirtualCluster(VirtualSpec spec)
    : spec_(std::move(spec)),
      world_(spec_.cluster.compiler, spec_.cluster.network),
      state_(spec_.controller),
      random_(spec_.seed) {
  world_.compile_ns = spec_.cluster.compile_ns;
  for (uint32_t i = 0; i < spec_.cluster.hosts; ++i) {
    // Names of local connections, which the controller does not expect heartbeats from.
    const std::string connection = "local/h" + std::to_string(i);
    host_of_[connection] = i;
    hosts_.push_back(std::make_unique<Host>(&world_, spec_.cluster.MakeHost(i),
                                            [this, connection](std::string head, std::vector<Payload> payloads) {
                                              ToController(connection, std::move(head), std::move(payloads));
                                            }));
    hosts_.back()->Join();
    Run();  // one after the other, so that host i is number i
  }
}

VirtualCluster::Client* VirtualCluster::AddClient(const std::string& name, double weight, int32_t priority) {
  const std::string connection = "local/c" + std::to_string(clients_.size());
  clients_.push_back(std::unique_ptr<Client>(new Client(this, connection)));
  Client* const client = clients_.back().get();
  client_of_[connection] = client;
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = spec_.controller.build;
  hello.name = name;
  hello.weight = weight;
  hello.priority = priority;
  client->Send(hello);
  while (client->index_ == 0 && client->refusal_.ok() && Step()) {
  }
  return client;
}

int64_t VirtualCluster::Arrival(const std::string& stream) {
  int64_t at = world_.timeline.now() + spec_.latency_ns;
  if (spec_.jitter_ns > 0) {
    at += static_cast<int64_t>(random_() % static_cast<uint64_t>(spec_.jitter_ns + 1));
  }
  int64_t& last = last_arrival_[stream];
  last = std::max(last, at);
  return last;
}

void VirtualCluster::ToController(const std::string& from, std::string head, std::vector<Payload> payloads) {
  auto shared = std::make_shared<std::pair<std::string, std::vector<Payload>>>(std::move(head), std::move(payloads));
  world_.timeline.At(Arrival(from), [this, from, shared](int64_t at) {
    controller::Outputs out;
    state_.OnMessage(from, std::move(shared->first), std::move(shared->second), Milliseconds(at), out);
    Deliver(out);
  });
}

void VirtualCluster::Deliver(controller::Outputs& out) {
  for (controller::Outgoing& outgoing : out) {
    auto host = host_of_.find(outgoing.to);
    std::string stream = "to " + outgoing.to;
    if (host != host_of_.end() && !spec_.in_order) {
      const Result<wire::Head> head = wire::DecodeHead(outgoing.head);
      if (head.ok() && wire::IsRun(head->header.type)) {
        // All their bodies begin with the run's id, which names the client.
        uint64_t run = 0;
        if (head->body.size() >= sizeof run) std::copy_n(head->body.data(), sizeof run, reinterpret_cast<char*>(&run));
        stream += " of " + std::to_string(wire::ClientOf(run));
      }
    }
    const int64_t at = Arrival(stream);
    auto shared = std::make_shared<controller::Outgoing>(std::move(outgoing));
    if (host != host_of_.end()) {
      world_.timeline.At(at, [this, index = host->second, shared](int64_t) {
        hosts_[index]->OnMessage(shared->head, shared->payloads);
      });
    } else if (auto client = client_of_.find(shared->to); client != client_of_.end()) {
      world_.timeline.At(at, [to = client->second, shared](int64_t) { to->OnMessage(shared->head); });
    }
  }
}

void VirtualCluster::LoseHost(uint32_t host, const std::string& reason) {
  hosts_[host]->Die();
  controller::Outputs out;
  state_.OnHostExited(ClusterSpec::HostName(host), reason, out);
  Deliver(out);
}

void VirtualCluster::Tick() {
  constexpr int64_t kPeriodNs = 10'000'000;
  if (now() < next_tick_) return;
  next_tick_ = now() + kPeriodNs;
  controller::Outputs out;
  state_.OnTick(Milliseconds(now()), out);
  Deliver(out);
}

bool VirtualCluster::Run(int64_t until) {
  for (DoneReport* report : std::exchange(world_.news, {})) report->Flush();  // of what the caller did
  while (!world_.timeline.empty() || WaitForController(until)) {
    if (world_.timeline.next() > until) {
      world_.timeline.SetNow(until);
      return false;
    }
    Step();
  }
  return true;
}

bool VirtualCluster::WaitForController(int64_t until) {
  constexpr int64_t kPatienceNs = 3'000'000'000;
  const bool waits = std::any_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->unfinished() > 0; });
  if (!waits || world_.fleet.waiting_gangs() > 0) return false;
  const int64_t end = std::min(until, now() + kPatienceNs);
  while (world_.timeline.empty() && now() < end) {
    world_.timeline.SetNow(std::max(now() + 1, next_tick_));
    Tick();
  }
  return !world_.timeline.empty();
}

bool VirtualCluster::Step() {
  if (!world_.timeline.RunNext()) return false;
  for (DoneReport* report : std::exchange(world_.news, {})) report->Flush();
  Tick();
  return true;
}

Status VirtualCluster::CheckIdle() const {
  PW_RETURN_IF_ERROR(world_.fleet.FindDeadlock());
  if (world_.fleet.waiting_gangs() > 0) {
    return Status(Code::kAborted, std::to_string(world_.fleet.waiting_gangs()) +
                                      " gangs stand still, and nothing is left that could let them go");
  }
  for (const std::unique_ptr<Client>& client : clients_) {
    if (client->unfinished() == 0) continue;
    return Status(Code::kAborted, "client " + std::to_string(client->index()) + " waits for " +
                                      std::to_string(client->unfinished()) + " runs that will never end");
  }
  return OkStatus();
}

// --- clients

template <typename Body>
void VirtualCluster::Client::Send(const Body& body, std::vector<Payload> payloads) {
  cluster_->ToController(connection_, wire::Encode(body), std::move(payloads));
}

uint64_t VirtualCluster::Client::Mint(uint64_t count) {
  const uint64_t first = (uint64_t{index_} << wire::kClientShift) + next_;
  next_ += count;
  return first;
}

uint64_t VirtualCluster::Client::Register(const std::string& name, const std::vector<uint32_t>& devices,
                                          bool one_device, std::shared_ptr<const std::string> module) {
  wire::Register request;
  request.function = Mint();
  request.name = name;
  request.format = "hlo";
  request.partitions = one_device ? 1 : static_cast<uint32_t>(devices.size());
  request.one_device = one_device;
  request.devices = devices;
  Send(request, {std::move(module), std::make_shared<const std::string>()});
  return request.function;
}

uint64_t VirtualCluster::Client::Put(const TensorType& type, const std::vector<uint32_t>& devices) {
  const uint64_t buffer = Mint(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    wire::Put put;
    put.buffer = buffer;
    put.key = buffer + i;
    put.shard = static_cast<uint32_t>(i);
    put.device = devices[i];
    put.type = type;
    Send(put);
  }
  return buffer;
}

uint64_t VirtualCluster::Client::Run(uint64_t function, const std::vector<uint32_t>& devices,
                                     const std::vector<uint64_t>& arguments, uint32_t output_count, Ended ended) {
  wire::Run run;
  run.run = Mint();
  run.function = function;
  run.output_count = output_count;
  run.first_output = Mint(std::max<uint32_t>(output_count, 1));
  run.devices = devices;
  run.arguments = arguments;
  runs_[run.run] = std::move(ended);
  Send(run);
  return run.first_output;
}

uint64_t VirtualCluster::Client::RegisterProgram(std::vector<wire::RegisterPlan> plans) {
  const uint64_t program = Mint();
  for (wire::RegisterPlan& plan : plans) {
    plan.program = program;
    Send(plan);
  }
  return program;
}

uint64_t VirtualCluster::Client::RunProgram(uint64_t program, uint32_t channels, const std::vector<uint64_t>& arguments,
                                            uint32_t output_count, Ended ended) {
  wire::RunProgram run;
  run.run = Mint();
  run.program = program;
  run.output_count = output_count;
  run.first_output = Mint(std::max<uint32_t>(output_count, 1));
  run.first_key = Mint(std::max<uint32_t>(channels, 1));
  run.arguments = arguments;
  runs_[run.run] = std::move(ended);
  Send(run);
  return run.first_output;
}

void VirtualCluster::Client::Free(uint64_t buffer, const std::vector<uint32_t>& devices) {
  uint32_t previous = UINT32_MAX;
  for (const uint32_t device : devices) {
    const uint32_t host = device / cluster_->spec_.cluster.devices_per_host;
    if (host != previous) Send(wire::Free{host, {buffer}});
    previous = host;
  }
}

void VirtualCluster::Client::Fetch(uint64_t buffer, uint32_t shard, uint32_t device,
                                   std::function<void(const wire::Fetched&)> answer) {
  wire::Fetch fetch;
  fetch.request = Mint();
  fetch.buffer = buffer;
  fetch.shard = shard;
  fetch.device = device;
  fetches_[fetch.request] = std::move(answer);
  Send(fetch);
}

void VirtualCluster::Client::Vanish() {
  runs_.clear();
  fetches_.clear();
  controller::Outputs out;
  cluster_->client_of_.erase(connection_);
  cluster_->state_.OnDisconnected(connection_, "it vanished", out);
  cluster_->Deliver(out);
}

void VirtualCluster::Client::OnMessage(const std::string& frame) {
  const Result<wire::Head> head = wire::DecodeHead(frame);
  if (!head.ok()) {
    refusal_ = head.status();
    return;
  }
  const auto read = [&](auto body) {  // NOLINT(performance-unnecessary-value-param): its type is asked for
    Result<decltype(body)> decoded = wire::Decode<decltype(body)>(head->body);
    if (!decoded.ok()) refusal_ = decoded.status();
    return decoded.ok() ? *std::move(decoded) : body;
  };
  const auto note = [this](const Status& status) {
    if (!status.ok()) failures_.push_back(status);
  };
  switch (head->header.type) {
    case wire::Type::kWelcome:
      index_ = read(wire::Welcome()).peer;
      return;
    case wire::Type::kReject:
      refusal_ = read(wire::Reject()).status;
      return;
    case wire::Type::kDone:
      for (const wire::RunOutcome& outcome : read(wire::Done()).outcomes) {
        auto run = runs_.extract(outcome.run);
        if (!run.empty() && run.mapped()) run.mapped()(outcome.run, outcome.status);
      }
      return;
    case wire::Type::kFetched: {
      const wire::Fetched fetched = read(wire::Fetched());
      auto fetch = fetches_.extract(fetched.request);
      if (!fetch.empty()) fetch.mapped()(fetched);
      return;
    }
    case wire::Type::kRegistered:
      return note(read(wire::Registered()).status);
    case wire::Type::kPlanReady:
      return note(read(wire::PlanReady()).status);
    case wire::Type::kBufferFailed:
      return note(read(wire::BufferFailed()).status);
    default:  // topology, heartbeats, losses: a script does not mind
      return;
  }
}

}  // namespace pathways::sim
