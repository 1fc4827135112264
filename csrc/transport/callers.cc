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
  ++strangers_at_[caller.place];
  ++strangers_;
  callers_[fd] = std::move(caller);
  fresh_.push_back(fd);
}

std::string Callers::Ended(int fd) {
  auto node = callers_.extract(fd);
  if (node.empty()) return "";
  if (!node.mapped().known && !node.mapped().dropped) Forget(node.mapped());
  return std::move(node.mapped().address);
}

void Callers::Forget(const Caller& caller) {
  --strangers_;
  const auto at = strangers_at_.find(caller.place);
  if (at != strangers_at_.end() && --at->second == 0) strangers_at_.erase(at);
}

void Callers::HangUp(int fd, Caller& caller) {
  caller.dropped = true;
  Forget(caller);
  if (caller.cookie == 0 || CookieOf(fd) != caller.cookie) return;
  (void)::shutdown(fd, SHUT_RDWR);  // its end is told as any other
}

void Callers::Enforce() {
  const std::vector<int> fresh = std::exchange(fresh_, {});
  for (auto fd_at = fresh.rbegin(); fd_at != fresh.rend(); ++fd_at) {
    const int fd = *fd_at;
    const auto at = callers_.find(fd);
    if (at == callers_.end() || at->second.dropped) continue;
    Caller& caller = at->second;
    caller.cookie = CookieOf(fd);
    const bool many_here = limits_.per_address != 0 && strangers_at_[caller.place] > limits_.per_address;
    const bool many = limits_.in_all != 0 && strangers_ > limits_.in_all;
    if (many_here || many) HangUp(fd, caller);
  }
}

void Callers::DropStrangers(Clock::time_point now, Clock::duration grace, const std::function<bool(int fd)>& is_known) {
  for (auto& [fd, caller] : callers_) {
    if (caller.known || caller.dropped) continue;
    if (is_known(fd)) {
      caller.known = true;
      Forget(caller);
    } else if (now - caller.since > grace) {
      HangUp(fd, caller);
    }
  }
}

}  // namespace pathways::transport
