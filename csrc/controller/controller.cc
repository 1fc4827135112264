#include "csrc/controller/controller.h"

#include <unistd.h>

#include <algorithm>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/process.h"
#include "csrc/base/sha256.h"

namespace pathways::controller {
namespace {

constexpr std::chrono::seconds kLookAtStrangers{1};

// Of HandBack: how many messages, and how large one may be.
constexpr size_t kHandedBack = 1 << 12;
constexpr size_t kHandedBackBytes = 1 << 10;

uint64_t Now() { return static_cast<uint64_t>(NowMs()); }

}  // namespace

ClusterOptions Completed(ClusterOptions options, bool has_standby) {
  if (options.data_secret.empty()) options.data_secret = RandomBytes(32);
  options.pid = has_standby ? 0 : static_cast<uint64_t>(getpid());
  options.process_space = ProcessSpace();
  return options;
}

Controller::Controller(ControllerOptions options, std::unique_ptr<Core> core, std::unique_ptr<Journal> journal)
    : options_(std::move(options)), core_(std::move(core)), journal_(std::move(journal)) {
  if (journal_ == nullptr) core_->LoseStandby();
}

Result<std::unique_ptr<Controller>> Controller::Start(ControllerOptions options) {
  options.cluster = Completed(std::move(options.cluster), false);
  auto core = std::make_unique<Core>(options.cluster);
  return Start(std::move(options), std::move(core), nullptr);
}

Result<std::unique_ptr<Controller>> Controller::Start(ControllerOptions options, std::unique_ptr<Core> core,
                                                      std::unique_ptr<Journal> journal) {
  std::unique_ptr<Controller> controller(new Controller(std::move(options), std::move(core), std::move(journal)));
  const ControllerOptions& given = controller->options_;
  const transport::CurveOptions curve = given.keys.Curve(transport::Role::kController);
  PW_RETURN_IF_ERROR(controller->listener_.Open(given.bind, curve, given.bind_patience));
  PW_ASSIGN_OR_RETURN(controller->reactor_, transport::Reactor::Start({.name = "pw-control"}));
  controller->BeginToServe();
  PW_RETURN_IF_ERROR(controller->reactor_->Add(controller->socket(), controller.get()));
  controller->reactor_->AddTimer(kLookAtStrangers, kLookAtStrangers, [raw = controller.get()] {
    raw->listener_.DropStrangers([raw](std::string_view peer) {
      std::lock_guard lock(raw->mutex_);
      return raw->core_->Knows(peer);
    });
  });
  // Also how finely what waits for memory is timed.
  const std::chrono::milliseconds tick(
      std::clamp<uint32_t>(controller->options_.cluster.heartbeat_interval_ms / 2, 10, 50));
  controller->reactor_->AddTimer(tick, tick, [raw = controller.get()] {
    raw->Tick();
    raw->listener_.ListenAgain();
    raw->FinishRotation();
  });
  return controller;
}

void Controller::BeginToServe() {
  Run([this](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    Input input;
    input.kind = Input::Kind::kServing;
    input.now_ms = Now();
    input.pid = static_cast<uint64_t>(getpid());
    input.standby = journal_ != nullptr ? static_cast<uint64_t>(journal_->standby()) : 0;
    for (const std::string& endpoint : endpoints()) input.head += endpoint + '\n';
    Record(input);
    core_->Apply(std::move(input), effects);
  });
}

void Controller::Tick() {
  transport::Link::Dropped taken;  // destroyed without the lock
  Run([&](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    taken.swap(taken_);
    Input input;
    input.now_ms = Now();
    input.gone = core_->ProcessesInDoubt();
    std::erase_if(input.gone, [](uint64_t pid) { return !ProcessIsGone(pid); });
    input.digest = core_->digest();
    Record(input);
    if (journal_ != nullptr && !journal_->Flush()) LoseStandby();
    core_->Apply(std::move(input), effects);
  });
}

Status Controller::Rotate(const Core::Rotation& next) {
  if (!options_.keys.enabled()) {
    return FailedPrecondition("a cluster without a join token has none to change; start it with one");
  }
  Status status;
  Run([&](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    if (core_->rotation()) {
      status = FailedPrecondition("the join token is being changed already");
    } else if (core_->state().has_island_connections()) {
      status = FailedPrecondition(
          "hosts whose plugins span hosts hold connections that end with the keys; a cluster "
          "with such hosts must be started again with another join token");
    }
    if (!status.ok()) return;
    Input input;
    input.kind = Input::Kind::kRotate;
    input.now_ms = Now();
    input.head = next.cluster + '\n' + next.worker + '\n' + next.client;
    Record(input);
    core_->Apply(std::move(input), effects);
  });
  return status;
}

bool Controller::rotating() {
  std::lock_guard lock(mutex_);
  return core_->rotation().has_value();
}

std::string Controller::token() {
  std::lock_guard lock(mutex_);
  return core_->token();
}

void Controller::FinishRotation() {
  Result<transport::ClusterKeys> keys = transport::ClusterKeys();
  {
    std::lock_guard lock(mutex_);
    if (!core_->rotation()) {
      rotation_since_ms_ = 0;
      return;
    }
    if (rotation_since_ms_ == 0) rotation_since_ms_ = Now();
    // Who is silent for that long is no member any more.
    if (!core_->RotationIsKnown() && Now() < rotation_since_ms_ + options_.cluster.lease_ms) return;
    keys = transport::KeysOfToken(core_->rotation()->cluster, transport::Role::kController);
  }
  if (keys.ok()) listener_.AskFor(keys->Curve(transport::Role::kController));
  Run([this](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    Input input;
    input.kind = Input::Kind::kRotated;
    input.now_ms = Now();
    Record(input);
    core_->Apply(std::move(input), effects);
  });
  listener_.ListenAgain();
}

Controller::~Controller() { Close("the controller ends"); }

void Controller::Record(const Input& input) {
  if (journal_ != nullptr && !journal_->Write(input)) LoseStandby();
}

void Controller::LoseStandby() {
  lost_standby_ = "lost its standby (process " + std::to_string(journal_->standby()) + "): " + journal_->why_lost() +
                  "; the cluster goes on, and ends with this process";
  journal_.reset();
  core_->LoseStandby();
}

template <typename Step>
void Controller::Run(Step step) {
  Core::Effects effects;
  LocalMembers::Clients to_local;
  std::vector<std::pair<logging::Level, std::string>> log;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    effects.parcels.swap(parcels_);
    step(effects);
    Send(effects.parcels);
    effects.parcels.clear();
    effects.parcels.swap(parcels_);
    HandBack(effects.dropped);
    // Under mutex_, so that each member's messages have the order of the state.
    for (Outgoing& outgoing : effects.local) local_.Put(std::move(outgoing), to_local);
    for (const auto& [peer, line] : effects.log) {
      std::optional<std::string> text =
          logging::Says(logging::Level::kInfo) ? log_limit_.Take(peer, line, Now()) : std::nullopt;
      if (text) log.emplace_back(logging::Level::kInfo, *std::move(text));
    }
    if (!lost_standby_.empty()) log.emplace_back(logging::Level::kWarning, std::exchange(lost_standby_, {}));
  }
  for (auto& client : to_local) {
    // Never within a local client's own call: it may hold locks that its sink, or what hangs on it, takes.
    if (reactor_->OnThread()) {
      client->Deliver();
    } else {
      reactor_->Post([client = std::move(client)] { client->Deliver(); });
    }
  }
  for (const auto& [level, line] : log) logging::Write(level, "controller", line);
  if (effects.hosts_changed) changed_.notify_all();
}

template <typename Step>
void Controller::RunLocal(Step step) {
  Run([&](Core::Effects& effects) PW_NO_THREAD_SAFETY { core_->ApplyLocal(step, effects); });
}

void Controller::Log(std::string_view peer, const std::string& line) {
  std::optional<std::string> text;
  {
    std::lock_guard lock(mutex_);
    text = log_limit_.Take(peer, line, Now());
  }
  if (text) logging::Warning("controller", *text);
}

// What does not arrive is kept, and sent again by the member's next connection.
void Controller::Send(Lines::Parcels& parcels) {
  for (Lines::Parcel& parcel : parcels) (void)socket()->Send(parcel.route, std::move(parcel.frames));
}

void Controller::HandBack(transport::Link::Dropped& dropped) {
  if (reactor_ == nullptr || !reactor_->OnThread()) {
    if (dropped.empty()) dropped.swap(taken_);
    return;
  }
  if (!local_.has_clients()) return;
  for (transport::Frames& frames : dropped) {
    const bool is_small = frames.size() == 1 && frames[0].size() <= kHandedBackBytes;
    if (is_small && taken_.size() < kHandedBack) taken_.push_back(std::move(frames));
  }
}

void Controller::OnMessage(transport::Socket&, std::string_view peer, transport::Frames& frames) {
  if (frames.empty()) return;
  if (Status status = Listener::CheckSender(peer, frames[0]); !status.ok()) {
    Log(peer, "refused a peer: " + status.ToString());
    (void)socket()->Send(peer, transport::Frame(wire::Encode(wire::Reject{std::move(status)})));
    return;
  }
  Input input;
  input.kind = Input::Kind::kMessage;
  input.route = peer;
  input.head = std::string(frames[0].bytes());
  for (size_t i = 1; i < frames.size(); ++i) {
    input.payloads.push_back(std::make_shared<const std::string>(frames[i].bytes()));
  }
  if (const Result<wire::Head> decoded = wire::DecodeHead(input.head); decoded.ok()) {
    // Only these two begin or resume a line; to look the sender up for every message would take longer than the rest.
    const bool shows_owner =
        decoded->header.type == wire::Type::kHello || decoded->header.type == wire::Type::kHeartbeat;
    if (shows_owner) input.sender = frames[0].sender();
    if (decoded->header.type == wire::Type::kHello) input.address = frames[0].address();
  }
  std::string refused;
  Run([&](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    input.now_ms = Now();
    Record(input);
    core_->Apply(std::move(input), effects);
    refused = std::move(effects.refused);
  });
  if (!refused.empty()) Log(peer, "refused a message: " + refused);
}

void Controller::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  if (event.kind == transport::PeerEventKind::kHandshakeFailed) {
    listener_.LogRefusal(event, Now());
    return;
  }
  if (event.kind != transport::PeerEventKind::kDisconnected || event.identity.empty()) return;
  if (event.identity.starts_with(Core::kLocal) || event.identity.starts_with(Lines::kPrefix)) return;  // was refused
  Run([&](Core::Effects& effects) PW_NO_THREAD_SAFETY {
    Input input;
    input.kind = Input::Kind::kClosed;
    input.now_ms = Now();
    input.route = event.identity;
    Record(input);
    core_->Apply(std::move(input), effects);
  });
}

Connection Controller::AttachLocal(Sink sink) {
  std::lock_guard lock(mutex_);
  return local_.AttachClient(std::move(sink));
}

Connection Controller::AttachLocalHost(Sink sink) {
  std::lock_guard lock(mutex_);
  return local_.AttachHost(std::move(sink));
}

void Controller::DetachLocal(const Connection& connection) {
  RunLocal([&](ClusterState& state, Outputs& out) { state.OnDisconnected(connection, "it has left", out); });
  std::shared_ptr<LocalMembers::Client> client;
  {
    std::lock_guard lock(mutex_);
    client = local_.Detach(connection);
  }
  if (client != nullptr) client->Finish();
}

void Controller::FromLocal(const Connection& connection, std::string head, std::vector<Payload> payloads) {
  RunLocal([&](ClusterState& state, Outputs& out) {
    state.OnMessage(connection, std::move(head), std::move(payloads), Now(), out);
  });
}

Status Controller::WaitForHosts(uint32_t count, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  UniqueLock lock(mutex_);
  for (;;) {
    if (core_->state().live_host_count() >= count) return OkStatus();
    std::string came;
    for (const wire::HostDescription& host : core_->state().HostDescriptions()) {
      if (host.alive) came += (came.empty() ? "" : ", ") + host.name;
    }
    if (!exited_.empty()) {
      return Unavailable("expected " + std::to_string(count) + " hosts, but " + exited_.front() +
                         " before it joined (joined: " + (came.empty() ? "none" : came) + ")");
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && core_->state().live_host_count() < count) {
      std::string missing;
      for (const std::string& name : core_->state().MissingHosts()) missing += (missing.empty() ? "" : ", ") + name;
      return DeadlineExceeded("expected " + std::to_string(count) + " hosts, got " +
                              std::to_string(core_->state().live_host_count()) + (came.empty() ? "" : ": " + came) +
                              (missing.empty() ? "" : "; never heard of: " + missing));
    }
  }
}

void Controller::HostExited(const std::string& name, const std::string& reason) {
  RunLocal([&](ClusterState& state, Outputs& out) { state.OnHostExited(name, reason, out); });
  {
    std::lock_guard lock(mutex_);
    const std::vector<wire::HostDescription> hosts = core_->state().HostDescriptions();
    const bool joined = std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host.name == name; });
    if (!joined) exited_.push_back("host '" + name + "' ended (" + reason + ")");
  }
  changed_.notify_all();
}

std::string Controller::StatusJson() {
  std::lock_guard lock(mutex_);
  return core_->state().StatusJson(Now());
}

void Controller::Close(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    Input input;
    input.kind = Input::Kind::kEnding;
    Record(input);
    Core::Effects effects;
    core_->Farewell(reason, effects);
    if (socket()) Send(effects.parcels);
    closed_ = true;
  }
  if (reactor_) reactor_->Stop();
  if (socket()) socket()->Close();
}

}  // namespace pathways::controller
