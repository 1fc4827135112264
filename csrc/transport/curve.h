// Curve: who may talk to us over a network. Key pairs, the rule that keeps plain sockets on this machine, and the
// check of a client's key.
//
// The intended use: a key pair for each role (keys.h). Listeners admit the public keys of the roles that may call, and
// a caller expects the key of the role that it calls; so both ends prove what they are.
//
// Ownership: values, except the admission server, a leaked singleton thread of this process started on first use.
// Threads:   every function may be called from any thread.
#ifndef PTPATHWAYS_TRANSPORT_CURVE_H_
#define PTPATHWAYS_TRANSPORT_CURVE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::transport {

struct CurveKeyPair {
  std::string public_key;  // 40 characters, Z85
  std::string secret_key;  // 40 characters, Z85
  bool empty() const { return public_key.empty() && secret_key.empty(); }
};

struct AllowedKey {
  AllowedKey(std::string key, std::string role = {})
      : key(std::move(key)), role(std::move(role)) {}  // NOLINT: implicit
  std::string key;
  std::string role;  // what Frame::sender says of those who present it
};

// Used for every endpoint but private ones: who may open those is the file system's decision.
struct CurveOptions {
  // Our own pair: a listener's identity, or what a caller presents. Empty: private endpoints only.
  CurveKeyPair keys{};
  // To connect: the listener's public key.
  std::string server_public_key{};
  // To bind: the client public keys admitted.
  std::vector<AllowedKey> allowed_client_keys{};
  // Without keys: endpoints that any process of this machine can reach are served nevertheless.
  bool insecure = false;

  bool enabled() const { return !keys.empty(); }
};

Result<CurveKeyPair> GenerateCurveKeyPair();

// For the user of a caller whose connection to the controller was refused: what to look at.
std::string RefusedText(std::string_view endpoint, const CurveOptions& curve);

// True when only processes of this machine can reach `endpoint`: ipc, inproc, and tcp on 127.0.0.0/8, [::1] or
// localhost. Anything that cannot be judged (interface names, wildcards, other host names) is false.
bool IsLoopback(std::string_view endpoint);

// True when only processes of this user can reach `endpoint`: inproc, and ipc in a folder that is this user's and that
// no other may enter.
bool IsPrivate(std::string_view endpoint);

// OK when `curve` is enabled, `endpoint` is private, or it is loopback and `curve` insecure; otherwise
// PERMISSION_DENIED, saying what to do; NOT_FOUND for a caller's ipc endpoint whose folder is gone.
Status CheckEndpointAllowed(std::string_view endpoint, const CurveOptions& curve, bool listens);

// The domain of private endpoints on sockets that use keys elsewhere.
inline constexpr std::string_view kOpenDomain = "pw-open";
// What Frame::sender says of those who came by one.
inline constexpr std::string_view kSameUser = "same user";

// Makes the process's admission server accept `client_public_keys` in `domain`, and nothing else there.
Status AllowCurveClients(const std::string& domain, const std::vector<AllowedKey>& client_public_keys);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_CURVE_H_
