#include "csrc/controller/members.h"

#include <algorithm>

namespace pathways::controller {

void Members::Heard(const Connection& connection, uint64_t now_ms) {
  if (auto member = members_.find(connection); member != members_.end()) member->second.last_heard_ms = now_ms;
}

void Members::Remove(const Connection& connection) {
  members_.erase(connection);
  gone_.push_back(connection);
}

const Members::Member* Members::Find(const Connection& connection) const {
  auto member = members_.find(connection);
  return member == members_.end() ? nullptr : &member->second;
}

std::optional<Members::Found> Members::Tick(uint64_t now_ms) {
  if (now_ms < last_tick_ms_ + interval_ms_) return std::nullopt;
  Found found;
  found.was_suspended = last_tick_ms_ != 0 && now_ms > last_tick_ms_ + std::min(lease_ms_, silence_ms_) / 2;
  last_tick_ms_ = now_ms;
  for (auto& [connection, member] : members_) {
    if (connection.starts_with("local/")) continue;
    if (found.was_suspended) member.last_heard_ms = now_ms;
    if (now_ms > member.last_heard_ms + lease_ms_) {
      found.lost.emplace_back(connection, now_ms - member.last_heard_ms);
      continue;
    }
    if (const bool is_silent = now_ms > member.last_heard_ms + silence_ms_; is_silent != member.silent) {
      member.silent = is_silent;
      found.changed.push_back({member, now_ms - member.last_heard_ms});
    }
    found.present.push_back(connection);
  }
  return found;
}

}  // namespace pathways::controller
