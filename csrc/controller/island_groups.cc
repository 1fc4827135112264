#include "csrc/controller/island_groups.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace pathways::controller {
namespace {

// Plugins ask for years when they mean for ever.
constexpr uint64_t kMaxTimeoutMs = uint64_t{365} * 24 * 3600 * 1000;

std::string Quoted(const std::string& text) { return "'" + text + "'"; }

std::string Seconds(uint64_t ms) {
  const std::string tenths = std::to_string(ms % 1000 / 100);
  return std::to_string(ms / 1000) + (tenths == "0" ? "" : "." + tenths) + " s";
}

template <typename Items, typename Name>
std::string Listed(const Items& items, Name name) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + Quoted(name(item));
  return text.empty() ? "none" : text;
}

// "host10" comes after "host9".
bool NaturalLess(const std::string& a, const std::string& b) {
  auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    const size_t first = i, second = j;
    while (i < a.size() && digit(a[i])) ++i;
    while (j < b.size() && digit(b[j])) ++j;
    if (i - first != j - second) return i - first < j - second;
    if (const int order = a.compare(first, i - first, b, second, j - second); order != 0) return order < 0;
  }
  return std::make_pair(a.size() - i, a) < std::make_pair(b.size() - j, b);
}

wire::IslandAnswer MakeAnswer(uint64_t request, Status status, std::string value = "") {
  wire::IslandAnswer answer;
  answer.request = request;
  answer.status = std::move(status);
  answer.value = std::move(value);
  return answer;
}

}  // namespace

void IslandGroups::Join(const std::string& from, wire::IslandJoin join, uint64_t now_ms, Answers& out) {
  Group* group = Forming(join.island);
  Status status =
      group_of_.contains(from) ? FailedPrecondition("this connection has already joined an island") : CheckJoin(join);
  if (status.ok() && group != nullptr) {
    status = CheckFits(*group, join);
    if (!status.ok()) group->refused.push_back(Quoted(join.name) + " (" + std::string(status.message()) + ")");
  }
  if (!status.ok()) {
    out.push_back({from, MakeAnswer(0, std::move(status))});
    return;
  }
  const std::string name = join.name;
  if (group == nullptr) {
    group = &groups_[next_++];
    join.timeout_ms = std::min(join.timeout_ms, kMaxTimeoutMs);
    group->deadline_ms = now_ms + join.timeout_ms;
    group->first = std::move(join);
  }
  group->members.push_back({from, name});
  const auto id =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& entry) { return &entry.second == group; });
  group_of_[from] = id->first;
  if (group->members.size() == group->first.hosts) Complete(*group, out);
}

Status IslandGroups::CheckJoin(const wire::IslandJoin& join) const {
  if (join.name.empty() || join.island.empty()) {
    return InvalidArgument("expected the names of the host and of its island, got '" + join.name + "' and '" +
                           join.island + "'; give the worker --island");
  }
  if (join.hosts == 0 || join.hosts > kMaxHosts) {
    return InvalidArgument("expected an island of 1 to " + std::to_string(kMaxHosts) + " hosts, got " +
                           std::to_string(join.hosts));
  }
  for (const auto& [id, group] : groups_) {
    if (group.first.island != join.island || !group.complete || !group.failure.ok()) continue;
    return Status(Code::kAlreadyExists, "island " + Quoted(join.island) + " is complete with its " +
                                            std::to_string(group.first.hosts) + " hosts (" +
                                            Listed(group.members, [](const Member& member) { return member.name; }) +
                                            "), so " + Quoted(join.name) +
                                            " cannot take part; give it another --island, or restart all of them with "
                                            "the new --island-hosts");
  }
  return OkStatus();
}

Status IslandGroups::CheckFits(const Group& group, const wire::IslandJoin& join) {
  const wire::IslandJoin& first = group.first;
  auto differs = [&](const std::string& what, const std::string& wanted, const std::string& got,
                     const std::string& advice) {
    return FailedPrecondition("expected " + what + " " + wanted + " as on host " + Quoted(first.name) + " of island " +
                              Quoted(first.island) + ", got " + got + " on host " + Quoted(join.name) + "; " + advice);
  };
  for (const Member& member : group.members) {
    if (member.name != join.name) continue;
    return Status(Code::kAlreadyExists, "a host named " + Quoted(join.name) + " is already in island " +
                                            Quoted(first.island) + "; give each worker its own --name");
  }
  if (join.hosts != first.hosts) {
    return differs("--island-hosts", std::to_string(first.hosts), std::to_string(join.hosts),
                   "give all its workers the same number");
  }
  if (join.platform != first.platform) {
    return differs("platform", first.platform, join.platform, "an island has devices of one platform");
  }
  if (join.plugin != first.plugin) {
    return differs("the plugin", first.plugin, join.plugin, "install the same plugin on every host of an island");
  }
  return OkStatus();
}

IslandGroups::Group* IslandGroups::Forming(const std::string& island) {
  for (auto& [id, group] : groups_) {
    if (!group.complete && group.first.island == island) return &group;
  }
  return nullptr;
}

size_t IslandGroups::Rank(const std::string& name) const {
  return static_cast<size_t>(std::find(expected_.begin(), expected_.end(), name) - expected_.begin());
}

void IslandGroups::Complete(Group& group, Answers& out) {
  std::sort(group.members.begin(), group.members.end(), [this](const Member& a, const Member& b) {
    const size_t first = Rank(a.name), second = Rank(b.name);
    return first != second ? first < second : NaturalLess(a.name, b.name);
  });
  group.complete = true;
  for (uint32_t node = 0; node < group.members.size(); ++node) {
    wire::IslandAnswer answer;
    answer.node = node;
    out.push_back({group.members[node].connection, std::move(answer)});
  }
}

void IslandGroups::Request(const std::string& from, wire::KeyValue request, uint64_t now_ms, Answers& out) {
  auto answer = [&](Status status, std::string value = "") {
    out.push_back({from, MakeAnswer(request.request, std::move(status), std::move(value))});
  };
  const auto id = group_of_.find(from);
  if (id == group_of_.end() || !groups_.at(id->second).complete) {
    return answer(FailedPrecondition("expected ISLAND_JOIN, and all hosts of the island, before KEY_VALUE"));
  }
  Group& group = groups_.at(id->second);
  if (!group.failure.ok()) return answer(group.failure);
  if (request.request == 0) return answer(InvalidArgument("expected requests numbered from 1, got 0"));
  if (request.key.empty() || request.key.size() > kMaxKeyBytes) {
    return answer(InvalidArgument("expected a key of 1 to " + std::to_string(kMaxKeyBytes) + " bytes, got " +
                                  std::to_string(request.key.size())));
  }
  if (request.kind == wire::KeyValueKind::kPut) return answer(Put(group, request, out));
  if (request.kind != wire::KeyValueKind::kGet && request.kind != wire::KeyValueKind::kTryGet) {
    return answer(InvalidArgument("expected a put, a get or a try-get, got kind " +
                                  std::to_string(static_cast<int>(request.kind))));
  }
  if (const auto found = group.values.find(request.key); found != group.values.end()) {
    return answer(OkStatus(), found->second);
  }
  if (request.kind == wire::KeyValueKind::kTryGet)
    return answer(NotFound("no host has put key " + Quoted(request.key)));
  Member& member = *Find(group, from);
  if (member.waiting >= kMaxWaitersPerHost) {
    return answer(ResourceExhausted("expected at most " + std::to_string(kMaxWaitersPerHost) +
                                    " gets under way from host " + Quoted(member.name)));
  }
  ++member.waiting;
  group.waiters.push_back(
      {from, request.request, std::move(request.key), now_ms, now_ms + std::min(request.timeout_ms, kMaxTimeoutMs)});
}

Status IslandGroups::Put(Group& group, wire::KeyValue& request, Answers& out) {
  if (request.value.size() > kMaxValueBytes) {
    return InvalidArgument("expected a value of at most " + std::to_string(kMaxValueBytes) + " bytes, got " +
                           std::to_string(request.value.size()) + " under key " + Quoted(request.key));
  }
  if (const auto known = group.values.find(request.key); known != group.values.end()) {
    if (known->second == request.value) return OkStatus();
    return Status(Code::kAlreadyExists, "key " + Quoted(request.key) + " has another value already");
  }
  const size_t bytes = request.key.size() + request.value.size();
  if (group.values.size() >= kMaxKeys || group.bytes + bytes > kMaxBytes) {
    return ResourceExhausted("expected at most " + std::to_string(kMaxKeys) + " keys and " +
                             std::to_string(kMaxBytes >> 20) + " MiB for an island, which has " +
                             std::to_string(group.values.size()) + " keys and " + std::to_string(group.bytes) +
                             " bytes");
  }
  group.bytes += bytes;
  const std::string& value = group.values.emplace(request.key, std::move(request.value)).first->second;
  std::erase_if(group.waiters, [&](const Waiter& waiter) {
    if (waiter.key != request.key) return false;
    Done(group, waiter, OkStatus(), value, out);
    return true;
  });
  return OkStatus();
}

IslandGroups::Member* IslandGroups::Find(Group& group, const std::string& connection) {
  const auto member = std::find_if(group.members.begin(), group.members.end(),
                                   [&](const Member& item) { return item.connection == connection; });
  return member == group.members.end() ? nullptr : &*member;
}

void IslandGroups::Done(Group& group, const Waiter& waiter, Status status, std::string value, Answers& out) {
  if (Member* member = Find(group, waiter.connection)) --member->waiting;
  out.push_back({waiter.connection, MakeAnswer(waiter.request, std::move(status), std::move(value))});
}

void IslandGroups::OnDisconnected(const std::string& from, const std::string& reason, Answers& out) {
  if (const auto id = group_of_.find(from); id != group_of_.end()) Leave(id->second, from, reason, out);
}

bool IslandGroups::has_host(const std::string& island, const std::string& name) const {
  for (const auto& [id, group] : groups_) {
    if (group.first.island != island || !group.complete) continue;
    for (const Member& member : group.members) {
      if (member.name == name) return true;
    }
  }
  return false;
}

void IslandGroups::OnHostLost(const std::string& name, const std::string& reason, Answers& out) {
  for (const auto& [id, group] : groups_) {
    for (const Member& member : group.members) {
      if (member.name != name || !group.complete) continue;
      const std::string connection = member.connection;
      return Leave(id, connection, reason, out);
    }
  }
}

void IslandGroups::Leave(uint64_t id, const std::string& connection, const std::string& reason, Answers& out) {
  Group& group = groups_.at(id);
  const std::string name = Find(group, connection)->name;
  std::erase_if(group.members, [&](const Member& member) { return member.connection == connection; });
  std::erase_if(group.waiters, [&](const Waiter& waiter) { return waiter.connection == connection; });
  group_of_.erase(connection);
  if (group.members.empty()) {
    groups_.erase(id);
    return;
  }
  if (!group.complete || !group.failure.ok()) return;
  group.failure = Unavailable("island " + Quoted(group.first.island) + " lost host " + Quoted(name) + ": " + reason);
  group.values.clear();
  group.bytes = 0;
  for (const Waiter& waiter : std::exchange(group.waiters, {})) Done(group, waiter, group.failure, "", out);
  for (const Member& member : group.members) {
    out.push_back({member.connection, MakeAnswer(0, group.failure), member.name});
  }
}

std::string IslandGroups::MissingText(const Group& group) const {
  std::vector<std::string> missing;
  for (const std::string& name : expected_) {
    const bool here = std::any_of(groups_.begin(), groups_.end(), [&](const auto& entry) {
      return std::any_of(entry.second.members.begin(), entry.second.members.end(),
                         [&](const Member& member) { return member.name == name; });
    });
    if (!here) missing.push_back(name);
  }
  std::string text;
  if (!missing.empty()) text += "; did not come: " + Listed(missing, [](const std::string& name) { return name; });
  for (const std::string& refused : group.refused) text += "; refused: " + refused;
  return text;
}

void IslandGroups::Tick(uint64_t now_ms, Answers& out) {
  std::vector<uint64_t> over;
  for (auto& [id, group] : groups_) {
    if (!group.complete && now_ms >= group.deadline_ms) over.push_back(id);
    std::erase_if(group.waiters, [&](const Waiter& waiter) {
      if (now_ms < waiter.deadline_ms) return false;
      Done(group, waiter,
           DeadlineExceeded("expected some host of island " + Quoted(group.first.island) + " to put key " +
                            Quoted(waiter.key) + " within " + Seconds(waiter.deadline_ms - waiter.since_ms) +
                            ", none did"),
           "", out);
      return true;
    });
  }
  for (const uint64_t id : over) {
    const Group& group = groups_.at(id);
    const Status status = DeadlineExceeded(
        "expected " + std::to_string(group.first.hosts) + " hosts of island " + Quoted(group.first.island) +
        " within " + Seconds(group.first.timeout_ms) + ", got " + std::to_string(group.members.size()) + ": " +
        Listed(group.members, [](const Member& member) { return member.name; }) + MissingText(group));
    for (const Member& member : group.members) out.push_back({member.connection, MakeAnswer(0, status)});
    Erase(id);
  }
}

void IslandGroups::Erase(uint64_t id) {
  for (const Member& member : groups_.at(id).members) group_of_.erase(member.connection);
  groups_.erase(id);
}

std::vector<std::string> IslandGroups::connections() const {
  std::vector<std::string> found;
  for (const auto& [connection, id] : group_of_) found.push_back(connection);
  return found;
}

IslandGroups::Answers IslandGroups::Farewell(const std::string& reason) const {
  Answers out;
  for (const auto& [connection, id] : group_of_) {
    out.push_back({connection, MakeAnswer(0, Unavailable("the controller ended: " + reason))});
  }
  return out;
}

}  // namespace pathways::controller
