#include "csrc/transport/callers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

namespace pathways::transport {
namespace {

// Of the other end; empty when the connection is gone already.
std::string AddressOf(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  const void* address = nullptr;
  if (storage.ss_family == AF_INET) address = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  if (storage.ss_family == AF_INET6) address = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  if (address == nullptr || ::inet_ntop(storage.ss_family, address, text, sizeof text) == nullptr) return "";
  return text;
}

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace

StrangerLimits UsualStrangerLimits() {
  rlimit descriptors{};
  const size_t most = ::getrlimit(RLIMIT_NOFILE, &descriptors) == 0 && descriptors.rlim_cur != RLIM_INFINITY
                          ? static_cast<size_t>(descriptors.rlim_cur)
                          : 1024;
  return {std::min<size_t>(most / 4, 512), std::min<size_t>(most / 2, 4096)};
}

void Callers::Accepted(int fd, bool tcp) {
  (void)Ended(fd);
  Caller caller;
  caller.address = tcp ? AddressOf(fd) : "";
  // All of 127.0.0.0/8 is this machine, and so is a path.
  caller.place = caller.address.starts_with("127.") || caller.address == "::1" ? "" : caller.address;
  caller.since = Clock::now();
  caller.number = next_++;
  mute_at_[caller.place][caller.number] = fd;
  mute_[caller.number] = fd;
  callers_[fd] = std::move(caller);
  fresh_.push_back(fd);
}

std::string Callers::Ended(int fd) {
  auto node = callers_.extract(fd);
  if (node.empty()) return "";
  Unmute(node.mapped());
  return std::move(node.mapped().address);
}

void Callers::Spoke(int fd) {
  if (const auto at = callers_.find(fd); at != callers_.end()) Unmute(at->second);
}

void Callers::Unmute(const Caller& caller) {
  if (mute_.erase(caller.number) == 0) return;
  const auto at = mute_at_.find(caller.place);
  at->second.erase(caller.number);
  if (at->second.empty()) mute_at_.erase(at);
}

void Callers::HangUp(int fd, Caller& caller) {
  caller.dropped = true;
  Unmute(caller);
  if (caller.cookie == 0 || CookieOf(fd) != caller.cookie) return;
  (void)::shutdown(fd, SHUT_RDWR);  // its end is told as any other
}

void Callers::HangUp(int fd) {
  if (const auto at = callers_.find(fd); at != callers_.end()) HangUp(fd, at->second);
}

void Callers::Enforce() {
  for (const int fd : std::exchange(fresh_, {})) {
    const auto at = callers_.find(fd);
    if (at == callers_.end()) continue;
    at->second.cookie = CookieOf(fd);
    const auto here = mute_at_.find(at->second.place);
    if (here == mute_at_.end()) continue;
    int oldest = -1;
    if (limits_.per_address != 0 && here->second.size() > limits_.per_address) {
      oldest = here->second.begin()->second;
    } else if (limits_.in_all != 0 && mute_.size() > limits_.in_all) {
      oldest = mute_.begin()->second;
    }
    if (oldest >= 0) HangUp(oldest, callers_.at(oldest));
  }
}

void Callers::DropStrangers(Clock::time_point now, Clock::duration grace, const std::function<bool(int fd)>& is_known) {
  for (auto& [fd, caller] : callers_) {
    if (caller.known || caller.dropped) continue;
    if (is_known(fd)) {
      caller.known = true;
      Unmute(caller);
    } else if (now - caller.since > grace) {
      HangUp(fd, caller);
    }
  }
}

}  // namespace pathways::transport
