#include "csrc/worker/island_link.h"

#include <algorithm>
#include <utility>

#include "csrc/wire/bodies.h"

namespace pathways::worker {
namespace {

// What the controller's answer may take beyond the time that it was given.
constexpr std::chrono::milliseconds kAnswerGrace{10000};
// Of a request that the controller answers at once.
constexpr std::chrono::milliseconds kAtOnce{30000};

}  // namespace

Result<std::shared_ptr<IslandLink>> IslandLink::Start(transport::SocketOptions options, const std::string& controller) {
  std::shared_ptr<IslandLink> link(new IslandLink());
  link->controller_ = controller;
  PW_ASSIGN_OR_RETURN(link->socket_, transport::Socket::Open(std::move(options)));
  PW_RETURN_IF_ERROR(link->socket_->Connect(controller));
  PW_ASSIGN_OR_RETURN(link->reactor_, transport::Reactor::Start({.name = "pw-island"}));
  PW_RETURN_IF_ERROR(link->reactor_->Add(link->socket_, link.get()));
  return link;
}

IslandLink::~IslandLink() {
  if (reactor_) reactor_->Stop();
  if (socket_) socket_->Close();
}

Result<uint32_t> IslandLink::Join(const wire::IslandJoin& request, std::function<void(const Status&)> on_lost) {
  PW_ASSIGN_OR_RETURN(const wire::IslandAnswer answer,
                      Ask(0, wire::Encode(request), std::chrono::milliseconds(request.timeout_ms)));
  PW_RETURN_IF_ERROR(answer.status);
  Status failure;
  {
    std::lock_guard lock(mutex_);
    failure = failure_;
    if (failure.ok()) on_lost_ = std::move(on_lost);
  }
  PW_RETURN_IF_ERROR(failure);
  return answer.node;
}

Result<std::string> IslandLink::Get(const std::string& key, std::chrono::milliseconds timeout) {
  return AskForKey({0, wire::KeyValueKind::kGet, key, "", static_cast<uint64_t>(timeout.count())});
}

Result<std::string> IslandLink::TryGet(const std::string& key) {
  return AskForKey({0, wire::KeyValueKind::kTryGet, key, "", 0});
}

Status IslandLink::Put(const std::string& key, std::string value) {
  return AskForKey({0, wire::KeyValueKind::kPut, key, std::move(value), 0}).status();
}

Result<std::string> IslandLink::AskForKey(wire::KeyValue request) {
  {
    std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  const bool waits = request.kind == wire::KeyValueKind::kGet;
  PW_ASSIGN_OR_RETURN(wire::IslandAnswer answer, Ask(request.request, wire::Encode(request),
                                                     waits ? std::chrono::milliseconds(request.timeout_ms) : kAtOnce));
  PW_RETURN_IF_ERROR(answer.status);
  return std::move(answer.value);
}

Result<wire::IslandAnswer> IslandLink::Ask(uint64_t request, std::string frame, std::chrono::milliseconds timeout) {
  // Plugins ask for years when they mean for ever.
  timeout = std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
  const auto deadline = std::chrono::steady_clock::now() + timeout + kAnswerGrace;
  {
    std::lock_guard lock(mutex_);
    PW_RETURN_IF_ERROR(failure_);
    asked_[request];
  }
  Status sent = socket_->Send({}, transport::Frame(std::move(frame)));
  UniqueLock lock(mutex_);
  auto entry = asked_.find(request);
  if (sent.ok()) {
    changed_.wait_until(lock, deadline,
                        [&]() PW_REQUIRES(mutex_) { return entry->second.has_value() || !failure_.ok(); });
    if (!entry->second) {
      sent = !failure_.ok() ? failure_
                            : DeadlineExceeded("expected an answer from the controller at " + controller_ +
                                               " about the island's hosts within " +
                                               std::to_string((timeout + kAnswerGrace).count() / 1000) +
                                               " s, got none; check the address and that the controller runs");
    }
  }
  std::optional<wire::IslandAnswer> answer = std::move(entry->second);
  asked_.erase(entry);
  if (!answer) return sent;
  return *std::move(answer);
}

void IslandLink::OnMessage(transport::Socket&, std::string_view, transport::Frames& frames) {
  const Status status =
      frames.empty() ? DataLoss("expected a head frame, got an empty message") : Take(frames[0].bytes());
  if (!status.ok()) Lose(status);
}

// An error is the end of the link.
Status IslandLink::Take(std::string_view frame) {
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frame));
  if (head.header.type == wire::Type::kReject) {
    PW_ASSIGN_OR_RETURN(const wire::Reject reject, wire::Decode<wire::Reject>(head.body));
    return reject.status.WithPrefix("the controller refused this host");
  }
  PW_ASSIGN_OR_RETURN(wire::IslandAnswer answer, wire::Decode<wire::IslandAnswer>(head.body));
  std::lock_guard lock(mutex_);
  const auto entry = asked_.find(answer.request);
  if (entry != asked_.end()) {
    entry->second = std::move(answer);
    changed_.notify_all();
    return OkStatus();
  }
  return answer.request == 0 ? answer.status : OkStatus();  // else of a request that was given up
}

void IslandLink::OnPeerEvent(transport::Socket&, const transport::PeerEvent& event) {
  if (event.kind == transport::PeerEventKind::kDisconnected) {
    Lose(Unavailable("the controller closed the connection"));
  } else if (event.kind == transport::PeerEventKind::kHandshakeFailed) {
    Lose(
        Status(Code::kPermissionDenied, "the controller at " + controller_ + " refused the connection; check the key"));
  }
}

void IslandLink::Lose(const Status& status) {
  std::function<void(const Status&)> on_lost;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
    on_lost = std::exchange(on_lost_, nullptr);
  }
  changed_.notify_all();
  if (on_lost) on_lost(status);
}

void IslandLink::Cancel(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    on_lost_ = nullptr;
  }
  Lose(status);
}

}  // namespace pathways::worker
