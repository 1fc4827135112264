// ClusterKeys: what a cluster's join token is to a controller, a worker, or a client. Each role has a key pair of its
// own, derived of the token, so a listener knows in which role a caller speaks, and nobody speaks in another's.
//
// The token of the cluster ("pw1-") makes the keys of every role. A token of a role ("pw1w-", "pw1c-") holds that
// role's secret key and the public keys of the others only: whoever has it can play that role and no other.
//
// Ownership: values. Threads: every function may be called from any thread.
#ifndef PTPATHWAYS_TRANSPORT_KEYS_H_
#define PTPATHWAYS_TRANSPORT_KEYS_H_

#include <array>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/transport/curve.h"
#include "csrc/transport/frame.h"

namespace pathways::transport {

enum class Role : uint8_t { kClient = 0, kWorker = 1, kController = 2 };
std::string_view RoleName(Role role);

// In place of a token: no keys, nobody is checked, and nothing leaves this machine.
inline constexpr std::string_view kInsecureToken = "insecure";

class ClusterKeys {
 public:
  ClusterKeys() = default;  // none: only endpoints that the file system keeps private

  bool enabled() const { return !own_.empty(); }
  bool insecure() const { return insecure_; }
  // For a socket of this role that connects to listeners of role `server`. A controller's or worker's may listen, too.
  CurveOptions Curve(Role server) const;

 private:
  friend Result<ClusterKeys> KeysOfToken(std::string_view token, Role role);

  Role role_ = Role::kClient;
  bool insecure_ = false;
  CurveKeyPair own_;
  std::array<std::string, 3> public_;  // by role
};

// `token`: of the cluster or of this role; kInsecureToken; or empty, for none. core._token makes tokens and checks the
// digits at their end, which find typing errors.
Result<ClusterKeys> KeysOfToken(std::string_view token, Role role);

// The keys that a token of `role` (worker or client) holds, as hexadecimal digits. `token` is the cluster's.
Result<std::string> KeysOfRole(std::string_view token, Role role);

// Whether the sender of a received frame may speak as `role`: it showed that role's key, or came by an endpoint at
// which only this user's processes can be, or nobody is checked here.
bool SpeaksAs(const Frame& frame, Role role);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_KEYS_H_
