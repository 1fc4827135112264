#include "csrc/controller/lines.h"

#include <algorithm>

#include "csrc/base/sha256.h"

namespace pathways::controller {

using transport::Frame;
using transport::Frames;
using transport::Link;
using wire::Type;

Lines::Verdict Lines::Take(std::string_view route, std::string_view sender, const wire::Head& head, size_t bytes,
                           Parcels& out, Link::Dropped* dropped) {
  const auto known = by_route_.find(std::string(route));
  Member* const member = known == by_route_.end() ? nullptr : known->second.get();
  const Type type = head.header.type;
  // Of a member that is none any more: who is told so, but for a HELLO that is said twice (ControlLine::Join).
  if (member != nullptr && member->dropped) {
    if (type == Type::kHello) return {};
    return {Connection(route), {}};
  }
  // A later connection speaks for it.
  if (member != nullptr && member->route != route) return {};
  if (type == Type::kHello) {
    Result<wire::Hello> hello = wire::Decode<wire::Hello>(head.body);
    if (!hello.ok()) return {std::nullopt, hello.status()};
    return OnHello(route, sender, *hello, member, out, dropped);
  }
  if (type == Type::kHeartbeat && head.header.number == 0) {
    Result<wire::Heartbeat> beat = wire::Decode<wire::Heartbeat>(head.body);
    if (!beat.ok()) return {std::nullopt, beat.status()};
    if (member != nullptr) {
      Status seen = member->line.Seen(beat->received, dropped);
      if (!seen.ok()) return {std::nullopt, std::move(seen)};
      member->beats = std::max(member->beats, beat->count);
      member->hears_nothing = beat->hears_nothing != 0;
      return {member->name, {}};
    }
    if (beat->line == 0) return {Connection(route), {}};
    const auto other = by_number_.find(beat->line);
    if (other == by_number_.end()) {
      return {std::nullopt, NotFound("nothing is known of this session: it was given up, or the controller has started "
                                     "again; join anew")};
    }
    Member& resumed = *other->second;
    if (Status status = CheckOwner(resumed, sender, beat->secret); !status.ok())
      return {std::nullopt, std::move(status)};
    // Connections are read in any order: one that came and went may be read last.
    if (beat->count <= resumed.beats) return {};
    Status status = Resume(other->second, route, beat->received, out, dropped);
    if (!status.ok()) return {std::nullopt, std::move(status)};
    resumed.beats = beat->count;
    resumed.hears_nothing = false;
    return {resumed.name, {}};
  }
  if (member == nullptr) {
    // What an earlier connection left in its caller's queue; the HEARTBEAT behind it shows whose it is.
    if (head.header.number != 0) return {};
    return {Connection(route), {}};
  }
  if (head.header.number == 0) {
    return {std::nullopt, InvalidArgument("expected " + std::string(wire::TypeName(type)) +
                                          " with its number on the member's line, got one without")};
  }
  switch (member->line.In(head.header.number, bytes)) {
    case Link::Verdict::kNew:
      if (member->line.OwesWord()) Tell(*member, false, out);
      return {member->name, {}};
    case Link::Verdict::kGap:
      if (member->line.AskForGap()) Tell(*member, true, out);
      return {};
    default:
      return {};
  }
}

Lines::Verdict Lines::OnHello(std::string_view route, std::string_view sender, const wire::Hello& hello,
                              const Member* speaks, Parcels& out, Link::Dropped* dropped) {
  if (hello.line == 0 || hello.secret.size() < wire::kMinSecretBytes || hello.secret.size() > wire::kMaxSecretBytes) {
    return {std::nullopt, InvalidArgument("expected HELLO with the number of a line and a secret of " +
                                          std::to_string(wire::kMinSecretBytes) + " to " +
                                          std::to_string(wire::kMaxSecretBytes) + " bytes")};
  }
  const auto known = by_number_.find(hello.line);
  if (speaks != nullptr) {
    if (known != by_number_.end() && known->second.get() == speaks) return {};  // said twice
    return {speaks->name, {}};                                                  // ClusterState refuses it
  }
  if (known != by_number_.end()) {  // the connection was lost before its WELCOME
    Status status = CheckOwner(*known->second, sender, hello.secret);
    if (status.ok() && known->second->beats == 0) status = Resume(known->second, route, 0, out, dropped);
    return {std::nullopt, std::move(status)};
  }
  auto member = std::make_shared<Member>(hello.line, hello.role == wire::Role::kWorker ? kWorkerLimits : kClientLimits);
  member->name = std::string(kPrefix) + std::to_string(next_++);
  member->route = std::string(route);
  member->sender = std::string(sender);
  member->secret = hello.secret;
  member->is_worker = hello.role == wire::Role::kWorker;
  if (!process_space_.empty() && hello.process_space == process_space_) member->pid = hello.pid;
  by_number_[hello.line] = member;
  by_name_[member->name] = member;
  by_route_[member->route] = member;
  return {member->name, {}, true};
}

Status Lines::CheckOwner(const Member& member, std::string_view sender, std::string_view secret) {
  if (EqualInConstantTime(secret, member.secret) && sender == member.sender) return OkStatus();
  return Status(Code::kPermissionDenied,
                "expected the secret and the key that this line began with, got others; a line is its member's only");
}

Status Lines::Resume(const MemberPtr& member, std::string_view route, uint64_t received, Parcels& out,
                     Link::Dropped* dropped) {
  PW_RETURN_IF_ERROR(member->line.Seen(received, dropped));
  member->route = std::string(route);
  by_route_[member->route] = member;
  closed_.erase(member->name);
  member->lifeline.Opened();
  (void)member->line.AskForGap();  // what comes until it has heard that it is to send again shows no further gap
  Tell(*member, true, out);
  member->line.Again([&](Frames frames) { out.push_back({member->route, std::move(frames)}); });
  return OkStatus();
}

void Lines::Tell(Member& member, bool again, Parcels& out) {
  wire::Heartbeat beat;
  beat.received = member.line.Tell();
  beat.again = again ? 1 : 0;
  Frames frames;
  frames.emplace_back(wire::Encode(beat));
  out.push_back({member.route, std::move(frames)});
}

bool Lines::OnClosed(std::string_view route, int64_t now_ms) { return Close(route, now_ms, false); }

bool Lines::Close(std::string_view route, int64_t now_ms, bool by_us) {
  const auto node = by_route_.extract(std::string(route));
  if (node.empty()) return false;
  const MemberPtr& member = node.mapped();
  if (member->dropped || member->route != route) return true;
  member->route.clear();
  // A member that hears nothing closes its connection to make another. That is silence, in the other direction.
  member->lifeline.Closed(now_ms, member->hears_nothing || by_us);
  closed_[member->name] = member;
  return true;
}

void Lines::CloseAll(int64_t now_ms) {
  std::vector<std::string> routes;
  for (const auto& [route, member] : by_route_) routes.push_back(route);
  for (const std::string& route : routes) (void)Close(route, now_ms, true);
}

std::vector<uint64_t> Lines::ProcessesInDoubt() const {
  std::vector<uint64_t> found;
  for (const auto& [name, member] : closed_) {
    if (member->pid != 0) found.push_back(member->pid);
  }
  return found;
}

std::vector<std::pair<Connection, std::string>> Lines::TakeGone(int64_t now_ms,
                                                                const std::function<bool(uint64_t pid)>& is_gone) {
  std::vector<std::pair<Connection, std::string>> gone;
  for (const auto& [name, member] : closed_) {
    std::string reason = member->lifeline.Tick(now_ms, 0, [&] { return member->pid != 0 && is_gone(member->pid); });
    if (!reason.empty()) gone.emplace_back(name, std::move(reason));
  }
  return gone;
}

Status Lines::Send(const Connection& name, Frames message, Parcels& out) {
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return OkStatus();  // it is none any more
  Member& member = *known->second;
  Frames frames = member.line.Out(std::move(message));
  if (!member.route.empty()) out.push_back({member.route, std::move(frames)});
  return member.line.CheckRoom();
}

void Lines::Beat(const Connection& name, Parcels& out) {
  const auto known = by_name_.find(name);
  if (known != by_name_.end() && !known->second->route.empty()) Tell(*known->second, false, out);
}

std::vector<std::pair<Connection, bool>> Lines::Members() const {
  std::vector<std::pair<Connection, bool>> members;
  for (const auto& [name, member] : by_name_) members.emplace_back(name, member->is_worker);
  std::ranges::sort(members);
  return members;
}

void Lines::Mark() {
  for (const auto& [name, member] : by_name_) member->marked = member->line.sent();
}

bool Lines::AllTook() const {
  return std::ranges::all_of(by_name_,
                             [](const auto& item) { return item.second->line.taken() >= item.second->marked; });
}

uint64_t Lines::Sent(const Connection& name) const {
  const auto known = by_name_.find(name);
  return known == by_name_.end() ? 0 : known->second->line.sent();
}

void Lines::Drop(const Connection& name) {
  const auto node = by_name_.extract(name);
  if (node.empty()) return;
  const MemberPtr& member = node.mapped();
  by_number_.erase(member->line.number());
  closed_.erase(name);
  member->dropped = true;
  member->line.Forget();
}

bool Lines::Speaks(std::string_view route) const {
  const auto known = by_route_.find(std::string(route));
  return known != by_route_.end() && !known->second->dropped && known->second->route == route;
}

}  // namespace pathways::controller
