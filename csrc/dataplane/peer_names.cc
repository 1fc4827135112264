#include "csrc/dataplane/peer_names.h"

#include <algorithm>

#include "csrc/base/sha256.h"
#include "csrc/transport/keys.h"

namespace pathways::dataplane {
namespace {

constexpr size_t kRouteBytes = 16;

}  // namespace

Result<wire::Identity> CallerOf(const Membership& membership, std::string_view route, const transport::Frame& hello) {
  wire::Identity identity{std::string(route), 0};
  if (membership.session != 0) {
    if (membership.key.empty()) return Status(Code::kPermissionDenied, "nobody calls a client");
    PW_ASSIGN_OR_RETURN(identity, wire::CheckIdentity(membership.key, route));
  }
  const bool client = identity.name.starts_with("c/");
  if ((!client && !identity.name.starts_with("w/")) ||
      !transport::SpeaksAs(hello, client ? transport::Role::kClient : transport::Role::kWorker)) {
    return Status(Code::kPermissionDenied, "a peer's name on data connections must be that of its role");
  }
  return identity;
}

std::string PeerNames::NewRoute() {
  return "to/" + std::to_string(next_route_++) + "/" + Hex(RandomBytes(kRouteBytes));
}

Status PeerNames::Enter(const wire::Identity& identity) {
  uint64_t& first = sessions_[identity.name];
  if (identity.session < first) return FailedPrecondition("the session of this name is over");
  first = identity.session;
  return OkStatus();
}

void PeerNames::EndSession(const std::string& name, uint64_t session) {
  uint64_t& first = sessions_[name];
  first = std::max(first, session + 1);
}

bool PeerNames::Return(const std::string& name, uint64_t link) {
  const auto at = gone_.find(name);
  if (at == gone_.end()) return true;
  if (at->second.link == link) return false;
  gone_.erase(at);
  return true;
}

Result<std::string> PeerNames::IdentityAt(const std::string& host) const {
  const auto at = identities_.find(host);
  if (at == identities_.end()) return FailedPrecondition("the controller has given no name for calls to it");
  return at->second;
}

}  // namespace pathways::dataplane
