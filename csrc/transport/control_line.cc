#include "csrc/transport/control_line.h"

#include <cstring>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/process.h"
#include "csrc/base/sha256.h"

namespace pathways::transport {
namespace {

// A connection on which not even libzmq's pings are answered for so long is made anew: soon enough for the new one to
// come within the controller's grace, if the old one has closed at that end only.
constexpr std::chrono::milliseconds kPing{500};
constexpr std::chrono::milliseconds kConnectionTimeout{2000};
// One attempt to connect, when the network drops packets.
constexpr std::chrono::milliseconds kAttempt{1500};
constexpr std::chrono::milliseconds kReconnectMax{250};
// Two of the controller's heartbeats. Less than it takes to give the connection up, by more than a heartbeat of ours.
constexpr std::chrono::milliseconds kHearsNothing{1000};
constexpr std::chrono::milliseconds kTick{100};
// How long it is tried with the same keys, when either may be asked for.
constexpr std::chrono::milliseconds kOtherKeys{100};
constexpr std::chrono::milliseconds kRefusesAgain{5'000};  // less than a handshake that nobody answers takes
// Of what the controller has not taken: far more than a member that waits for its results can have on the way.
constexpr LineLimits kLimits{size_t{1} << 18, size_t{1} << 30};

uint64_t RandomNumber() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number | 1;
}

}  // namespace

SocketOptions ControlLine::SocketOptionsFor(const CurveOptions& curve) {
  SocketOptions options;
  options.kind = SocketKind::kDealer;
  options.linger = std::chrono::milliseconds(200);
  options.max_message_bytes = int64_t{1} << 31;
  options.curve = curve;
  return options;
}

Result<std::unique_ptr<ControlLine>> ControlLine::Open(const std::string& endpoint, const CurveOptions& curve) {
  SocketOptions options = SocketOptionsFor(curve);
  options.heartbeat_interval = kPing;
  options.heartbeat_timeout = kConnectionTimeout;
  options.heartbeat_binds_peer = false;  // the controller bears silence for the lease
  options.connect_timeout = kAttempt;
  options.reconnect_interval_max = kReconnectMax;
  PW_ASSIGN_OR_RETURN(std::shared_ptr<Socket> socket, Socket::Open(options));
  PW_RETURN_IF_ERROR(socket->Connect(endpoint));
  return std::unique_ptr<ControlLine>(new ControlLine(endpoint, std::move(socket)));
}

ControlLine::ControlLine(std::string endpoint, std::shared_ptr<Socket> socket)
    : endpoint_(std::move(endpoint)),
      socket_(std::move(socket)),
      secret_(RandomBytes(wire::kMinSecretBytes)),
      line_(RandomNumber(), kLimits),
      curve_(socket_->options().curve) {
  beat_.line = line_.number();
  beat_.secret = secret_;
}

ControlLine::~ControlLine() { Close(); }

Status ControlLine::Attach(Reactor* reactor, Handler* handler) {
  handler_ = handler;
  PW_RETURN_IF_ERROR(reactor->Add(socket_, this));
  reactor->AddTimer(kTick, kTick, [this] { OnTick(); });
  return OkStatus();
}

Status ControlLine::Join(wire::Hello hello) {
  hello.secret = secret_;
  hello.process_space = ProcessSpace();
  std::lock_guard lock(mutex_);
  hello.line = line_.number();
  hello_ = wire::Encode(hello);
  return socket_->Send({}, Frame(std::string_view(hello_)));
}

Status ControlLine::Send(Frames frames) {
  std::lock_guard lock(mutex_);
  Frames sent = line_.Out(std::move(frames));
  if (Status status = line_.CheckRoom(); !status.ok()) {
    overflowed_ = true;
    return status.WithPrefix("the controller at " + endpoint_);
  }
  // Also without a connection, which this thread could not know for certain: on the next one the controller ignores
  // what comes before it knows whose that is, and asks for it again.
  return socket_->Send({}, std::move(sent));
}

void ControlLine::Beat(uint64_t live_buffers, uint64_t live_bytes, uint64_t engine_still_ms) {
  std::lock_guard lock(mutex_);
  beat_.live_buffers = live_buffers;
  beat_.live_bytes = live_bytes;
  beat_.engine_still_ms = engine_still_ms;
  SendBeat();
}

void ControlLine::SendBeat() {
  if (!welcomed_) return;
  beat_.received = line_.Tell();
  beat_.hears_nothing = NowMs() > heard_ms_ + kHearsNothing.count() ? 1 : 0;
  ++beat_.count;
  (void)socket_->Send({}, Frame(wire::Encode(beat_)));
}

void ControlLine::OnMessage(Socket&, std::string_view, Frames& frames) {
  if (lost_) return;
  heard_ms_ = NowMsCoarse();
  lifeline_.Heard(heard_ms_);
  const Result<bool> taken = Take(frames);
  if (!taken.ok()) return Lose(taken.status().WithPrefix("the controller at " + endpoint_));
  if (*taken) handler_->OnMessage(frames);
  // The handler may have taken long.
  lifeline_.Heard(NowMsCoarse());
}

Result<bool> ControlLine::Take(Frames& frames) {
  if (frames.empty()) return DataLoss("expected a head frame, got an empty message");
  PW_RETURN_IF_ERROR(wire::CheckPayloads(frames.size() - 1));
  const Result<wire::Head> head = wire::DecodeHead(frames[0].bytes());
  if (!head.ok()) return true;  // the handler says what it makes of it
  Link::Dropped dropped;
  std::lock_guard lock(mutex_);
  // A message comes by the connection that was made last: libzmq drops what those before it have left unread. That a
  // connection was made may be said late, of one before it.
  if (tries_next_) {
    curve_ = *std::exchange(next_curve_, std::nullopt);
    tries_next_ = false;
  }
  if (head->header.number == 0) {
    if (head->header.type != wire::Type::kHeartbeat) return true;  // a refusal of who is no member
    PW_ASSIGN_OR_RETURN(const wire::Heartbeat heartbeat, wire::Decode<wire::Heartbeat>(head->body));
    PW_RETURN_IF_ERROR(line_.Seen(heartbeat.received, &dropped));
    if (heartbeat.again != 0) {
      line_.Again([this](Frames again) { (void)socket_->Send({}, std::move(again)); });
    }
    return false;
  }
  size_t bytes = 0;
  for (const Frame& frame : frames) bytes += frame.size();
  const Link::Verdict verdict = line_.In(head->header.number, bytes);
  if (verdict == Link::Verdict::kGap) return DataLoss("expected every message of the controller, missed some");
  if (verdict != Link::Verdict::kNew) return false;
  if (head->header.type == wire::Type::kWelcome) OnWelcome(*head);
  if (line_.OwesWord()) SendBeat();
  return true;
}

void ControlLine::OnWelcome(const wire::Head& head) {
  welcomed_ = true;
  const Result<wire::Welcome> welcome = wire::Decode<wire::Welcome>(head.body);
  if (!welcome.ok()) return;  // the handler will say so
  lease_ms_ = welcome->lease_ms;
  if (!welcome->process_space.empty() && welcome->process_space == ProcessSpace()) controller_pid_ = welcome->pid;
}

void ControlLine::OnPeerEvent(Socket&, const PeerEvent& event) {
  if (lost_) return;
  switch (event.kind) {
    case PeerEventKind::kConnected: {
      lifeline_.Opened();
      heard_ms_ = NowMs();
      std::lock_guard lock(mutex_);
      if (welcomed_) {
        SendBeat();
      } else if (!hello_.empty()) {
        (void)socket_->Send({}, Frame(std::string_view(hello_)));
      }
      return;
    }
    case PeerEventKind::kDisconnected: {
      lifeline_.Closed(NowMs(), true);
      std::lock_guard lock(mutex_);
      // The reason may be that the controller asks for the other keys.
      if (next_curve_ && NowMs() >= called_ms_ + kOtherKeys.count()) CallAgain();
      return;
    }
    case PeerEventKind::kHandshakeFailed: {
      {
        std::lock_guard lock(mutex_);
        if (welcomed_) return;  // its listener may be about to go, or to come
      }
      // A controller that dies meanwhile looks the same, once; who refuses does it again at once.
      const int64_t now = NowMs();
      const std::optional<int64_t> before = std::exchange(refused_ms_, now);
      if (!before || now - *before > kRefusesAgain.count()) return;
      return Lose(Unavailable(RefusedText(endpoint_, socket_->options().curve)));
    }
  }
}

void ControlLine::OnTick() {
  if (lost_) return;
  if (overflowed_) {
    Status status;
    {
      std::lock_guard lock(mutex_);
      status = line_.CheckRoom();
    }
    return Lose(status.WithPrefix("the controller at " + endpoint_ + " is given up"));
  }
  if (lifeline_.CallsAgain(NowMs())) {
    std::lock_guard lock(mutex_);
    CallAgain();
  }
  if (lease_ms_ == 0) return;
  const std::string reason =
      lifeline_.Tick(NowMs(), lease_ms_, [this] { return controller_pid_ != 0 && ProcessIsGone(controller_pid_); });
  if (!reason.empty()) Lose(Unavailable("the controller at " + endpoint_ + " is lost: " + reason));
}

void ControlLine::Rotate(const CurveOptions& curve) {
  std::lock_guard lock(mutex_);
  next_curve_ = curve;
  tries_next_ = false;
}

// Under the lock, so that no message is sent in between, without an endpoint to go to.
void ControlLine::CallAgain() {
  called_ms_ = NowMs();
  (void)socket_->Disconnect(endpoint_);
  if (next_curve_) {  // which of them the controller asks for just now is not known
    tries_next_ = !tries_next_;
    (void)socket_->SetCurve(tries_next_ ? *next_curve_ : curve_);
  }
  (void)socket_->Connect(endpoint_);
}

void ControlLine::Lose(const Status& status) {
  lost_ = true;
  handler_->OnLost(status);
}

}  // namespace pathways::transport
