#include "csrc/controller/controller.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <thread>

#include "csrc/base/clock.h"
#include "csrc/base/sha256.h"

namespace pathways::controller {
namespace {

constexpr std::string_view kLocal = "local/";
// A caller must have joined by then.
constexpr std::chrono::seconds kHelloDeadline{10};
constexpr std::chrono::seconds kLookAtStrangers{1};

// A peer that does not read what it is sent is lost when so many messages are on their way to it; a client also when so
// many bytes are, of messages that are not small.
constexpr int kMaxUnreadMessages = 1 << 16;
constexpr int64_t kMaxUnreadBytes = int64_t{64} << 20;
constexpr size_t kSmallMessage = 512;
// Messages of one peer that libzmq takes ahead; then the peer's end keeps them.
constexpr int kMaxReceived = 1 << 13;

uint64_t Now() { return static_cast<uint64_t>(NowMs()); }

}  // namespace

struct Controller::LocalClient {
  explicit LocalClient(Sink sink) : sink(std::move(sink)) {}
  const Sink sink;
  std::mutex mutex;
  std::condition_variable idle;
  // Guarded by mutex:
  std::deque<Outgoing> inbox;
  std::thread::id delivering{};  // the thread that calls the sink just now
  bool detached = false;
};

void Controller::Deliver(LocalClient& client) {
  std::unique_lock lock(client.mutex);
  if (client.delivering == std::this_thread::get_id()) return;  // within its sink: who called that goes on after it
  client.delivering = std::this_thread::get_id();
  while (!client.inbox.empty() && !client.detached) {
    Outgoing message = std::move(client.inbox.front());
    client.inbox.pop_front();
    lock.unlock();
    client.sink(std::move(message.head), std::move(message.payloads));
    lock.lock();
  }
  client.delivering = {};
  client.idle.notify_all();
}

Controller::Controller(ControllerOptions options) : options_(std::move(options)), state_(options_.cluster) {}

Result<std::unique_ptr<Controller>> Controller::Start(ControllerOptions options) {
  if (options.cluster.data_key.empty()) options.cluster.data_key = RandomBytes(32);
  std::unique_ptr<Controller> controller(new Controller(std::move(options)));
  transport::SocketOptions socket_options;
  socket_options.kind = transport::SocketKind::kRouter;
  socket_options.linger = std::chrono::milliseconds(200);
  socket_options.send_hwm = kMaxUnreadMessages;
  socket_options.receive_hwm = kMaxReceived;
  socket_options.max_message_bytes = int64_t{1} << 31;
  socket_options.curve = controller->options_.keys.Curve(transport::Role::kController);
  socket_options.stranger_limits = transport::UsualStrangerLimits();
  socket_options.router_handover = false;  // nobody takes another's connection over
  PW_ASSIGN_OR_RETURN(controller->socket_, transport::Socket::Open(socket_options));
  for (const std::string& endpoint : controller->options_.bind) {
    PW_ASSIGN_OR_RETURN(std::string bound, controller->socket_->Bind(endpoint));
    controller->endpoints_.push_back(std::move(bound));
  }
  PW_ASSIGN_OR_RETURN(controller->reactor_, transport::Reactor::Start({.name = "pw-control"}));
  PW_RETURN_IF_ERROR(controller->reactor_->Add(controller->socket_, controller.get()));
  controller->reactor_->AddTimer(kLookAtStrangers, kLookAtStrangers, [raw = controller.get()] {
    raw->socket_->DropStrangers(kHelloDeadline, [raw](std::string_view peer) {
      std::lock_guard lock(raw->mutex_);
      return raw->state_.Knows(std::string(peer));
    });
  });
  // Also how finely what waits for memory is timed.
  const std::chrono::milliseconds tick(
      std::clamp<uint32_t>(controller->options_.cluster.heartbeat_interval_ms / 2, 10, 50));
  controller->reactor_->AddTimer(tick, tick, [raw = controller.get()] {
    raw->Apply([](ClusterState& state, Outputs& out) { state.OnTick(Now(), out); });
  });
  return controller;
}

Controller::~Controller() { Close("the controller ends"); }

template <typename Step>
void Controller::Apply(Step step) {
  Outputs out;
  std::vector<std::shared_ptr<LocalClient>> to_local;
  std::vector<std::string> log;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    step(state_, out);
    const auto send = [&](Outgoing& outgoing) {
      if (!outgoing.to.starts_with(kLocal)) {
        SendRemote(outgoing);
      } else if (auto host = local_hosts_.find(outgoing.to); host != local_hosts_.end()) {
        (*host->second)(std::move(outgoing.head), std::move(outgoing.payloads));
      } else if (auto client = local_.find(outgoing.to); client != local_.end()) {
        // Under mutex_, so that the inbox has the order of the state.
        std::lock_guard inbox(client->second->mutex);
        client->second->inbox.push_back(std::move(outgoing));
        if (to_local.empty() || to_local.back() != client->second) to_local.push_back(client->second);
      }
    };
    std::for_each(out.begin(), out.end(), send);
    while (!overflowed_.empty()) {
      const Connection lost = std::move(overflowed_.back());
      overflowed_.pop_back();
      unread_.erase(lost);
      out.clear();
      state_.OnDisconnected(lost, "it does not read what it is sent", out);
      std::for_each(out.begin(), out.end(), send);
    }
    for (const auto& [peer, line] : state_.TakeLog()) {
      std::optional<std::string> text = options_.verbose ? log_limit_.Take(peer, line, Now()) : std::nullopt;
      if (text) log.push_back(*std::move(text));
    }
  }
  for (auto& client : to_local) {
    // Never within a local client's own call: it may hold locks that its sink, or what hangs on it, takes.
    if (reactor_->OnThread()) {
      Deliver(*client);
    } else {
      reactor_->Post([client = std::move(client)] { Deliver(*client); });
    }
  }
  for (const std::string& line : log) std::fprintf(stderr, "ptpathways controller: %s\n", line.c_str());
}

void Controller::Log(std::string_view peer, const std::string& line) {
  std::optional<std::string> text;
  {
    std::lock_guard lock(mutex_);
    text = log_limit_.Take(peer, line, Now());
  }
  if (text) std::fprintf(stderr, "ptpathways controller: %s\n", text->c_str());
}

void Controller::SendRemote(Outgoing& outgoing) {
  transport::Frames frames;
  frames.reserve(1 + outgoing.payloads.size());
  size_t bytes = outgoing.head.size();
  for (const Payload& payload : outgoing.payloads) bytes += payload->size();
  const auto unread = CountUnread(outgoing.to, bytes);
  if (unread != nullptr) {
    auto head = std::make_shared<const std::string>(std::move(outgoing.head));
    frames.push_back(transport::Frame::Borrow(head->data(), head->size(), [head, unread, bytes] {
      unread->fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    }));
  } else {
    frames.emplace_back(std::move(outgoing.head));
  }
  for (Payload& payload : outgoing.payloads) {
    frames.push_back(transport::Frame::Borrow(payload->data(), payload->size(), [payload] {}));
  }
  // A peer that vanished is noticed by its closed connection or its silence.
  const Status sent = socket_->Send(outgoing.to, std::move(frames));
  if (sent.code() == Code::kResourceExhausted ||
      (unread != nullptr && unread->load(std::memory_order_relaxed) > kMaxUnreadBytes)) {
    overflowed_.push_back(outgoing.to);
  }
}

std::shared_ptr<std::atomic<int64_t>> Controller::CountUnread(const Connection& to, size_t bytes) {
  if (bytes <= kSmallMessage || !state_.IsClient(to)) return nullptr;
  auto& unread = unread_[to];
  if (unread == nullptr) unread = std::make_shared<std::atomic<int64_t>>(0);
  unread->fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return unread;
}

Status Controller::CheckSender(std::string_view peer, const transport::Frame& head) {
  if (peer.starts_with(kLocal)) {
    return Status(Code::kPermissionDenied,
                  "a connection's routing id must not begin with local/, which names the "
                  "controller's own process; leave it to libzmq to choose one");
  }
  Result<wire::Head> decoded = wire::DecodeHead(head.bytes());
  if (!decoded.ok()) return OkStatus();  // refused by the state, with the reason
  transport::Role role = transport::Role::kWorker;
  if (decoded->header.type == wire::Type::kHello) {
    Result<wire::Hello> hello = wire::Decode<wire::Hello>(decoded->body);
    if (!hello.ok()) return OkStatus();
    role = hello->role == wire::Role::kWorker ? transport::Role::kWorker : transport::Role::kClient;
  } else if (decoded->header.type != wire::Type::kIslandJoin) {
    return OkStatus();
  }
  if (transport::SpeaksAs(head, role)) return OkStatus();
  return Status(Code::kPermissionDenied, "expected the key of a " + std::string(transport::RoleName(role)) +
                                             " from who joins as one, got that of a " + std::string(head.sender()) +
                                             "; give it a token of its role (`ptpathways token --role`)");
}

void Controller::OnMessage(transport::Socket&, std::string_view peer, transport::Frames& frames) {
  if (frames.empty()) return;
  if (Status status = CheckSender(peer, frames[0]); !status.ok()) {
    Log(peer, "refused a peer: " + status.ToString());
    (void)socket_->Send(peer, transport::Frame(wire::Encode(wire::Reject{std::move(status)})));
    return;
  }
  std::string head(frames[0].bytes());
  std::vector<Payload> payloads;
  for (size_t i = 1; i < frames.size(); ++i) {
    payloads.push_back(std::make_shared<const std::string>(frames[i].bytes()));
  }
  const uint32_t before = [this] {
    std::lock_guard lock(mutex_);
    return state_.live_host_count();
  }();
  Apply([&](ClusterState& state, Outputs& out) {
    state.OnMessage(std::string(peer), std::move(head), std::move(payloads), Now(), out);
  });
  std::lock_guard lock(mutex_);
  if (state_.live_host_count() != before) changed_.notify_all();
}

void Controller::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  if (event.kind == transport::PeerEventKind::kHandshakeFailed) {
    if (const auto line = refusals_.Note(event.address, event.hung_up, Now())) {
      std::fprintf(stderr, "ptpathways controller: %s\n", line->c_str());
    }
    return;
  }
  if (event.kind != transport::PeerEventKind::kDisconnected || event.identity.empty()) return;
  if (event.identity.starts_with(kLocal)) return;  // it was refused, and is not whom it named
  Apply([&](ClusterState& state, Outputs& out) {
    unread_.erase(event.identity);
    state.OnDisconnected(event.identity, "its connection closed (the process ended or was killed)", out);
  });
  changed_.notify_all();
}

Connection Controller::AttachLocal(Sink sink) {
  std::lock_guard lock(mutex_);
  Connection connection = "local/" + std::to_string(next_local_++);
  local_[connection] = std::make_shared<LocalClient>(std::move(sink));
  return connection;
}

Connection Controller::AttachLocalHost(Sink sink) {
  std::lock_guard lock(mutex_);
  Connection connection = "local/" + std::to_string(next_local_++);
  local_hosts_[connection] = std::make_shared<Sink>(std::move(sink));
  return connection;
}

void Controller::DetachLocal(const Connection& connection) {
  Apply([&](ClusterState& state, Outputs& out) { state.OnDisconnected(connection, "it has left", out); });
  std::shared_ptr<LocalClient> client;
  {
    std::lock_guard lock(mutex_);
    local_hosts_.erase(connection);
    if (auto node = local_.extract(connection); !node.empty()) client = std::move(node.mapped());
  }
  if (client == nullptr) return;
  std::unique_lock lock(client->mutex);
  client->detached = true;
  client->idle.wait(lock, [&] {
    return client->delivering == std::thread::id() || client->delivering == std::this_thread::get_id();
  });
}

void Controller::FromLocal(const Connection& connection, std::string head, std::vector<Payload> payloads) {
  uint32_t before = 0, after = 0;
  Apply([&](ClusterState& state, Outputs& out) {
    before = state.live_host_count();
    state.OnMessage(connection, std::move(head), std::move(payloads), Now(), out);
    after = state.live_host_count();
  });
  if (after != before) changed_.notify_all();
}

Status Controller::WaitForHosts(uint32_t count, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (state_.live_host_count() >= count) return OkStatus();
    std::string came;
    for (const wire::HostDescription& host : state_.HostDescriptions()) {
      if (host.alive) came += (came.empty() ? "" : ", ") + host.name;
    }
    if (!exited_.empty()) {
      return Unavailable("expected " + std::to_string(count) + " hosts, but " + exited_.front() +
                         " before it joined (joined: " + (came.empty() ? "none" : came) + ")");
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && state_.live_host_count() < count) {
      std::string missing;
      for (const std::string& name : state_.MissingHosts()) missing += (missing.empty() ? "" : ", ") + name;
      return DeadlineExceeded("expected " + std::to_string(count) + " hosts within " +
                              std::to_string(timeout.count() / 1000) + " s, got " +
                              std::to_string(state_.live_host_count()) + (came.empty() ? "" : ": " + came) +
                              (missing.empty() ? "" : "; never heard of: " + missing));
    }
  }
}

void Controller::HostExited(const std::string& name, const std::string& reason) {
  Apply([&](ClusterState& state, Outputs& out) { state.OnHostExited(name, reason, out); });
  {
    std::lock_guard lock(mutex_);
    const std::vector<wire::HostDescription> hosts = state_.HostDescriptions();
    const bool joined = std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host.name == name; });
    if (!joined) exited_.push_back("host '" + name + "' ended (" + reason + ")");
  }
  changed_.notify_all();
}

std::string Controller::StatusJson() {
  std::lock_guard lock(mutex_);
  return state_.StatusJson(Now());
}

void Controller::Close(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    for (Outgoing& outgoing : state_.Farewell(reason)) {
      if (!outgoing.to.starts_with(kLocal)) SendRemote(outgoing);
    }
    closed_ = true;
  }
  if (reactor_) reactor_->Stop();
  if (socket_) socket_->Close();
}

}  // namespace pathways::controller
