// Curve: who may talk to us over a network. Key pairs, the rule that keeps plain sockets on this machine, and the
// check of a client's key.
//
// The intended use: one key pair per cluster, held by all its members, made of the cluster's join token. Listeners use
// its secret half, callers present the pair, and listeners admit only that public key; so both ends prove that they
// belong.
//
// Ownership: values, except the admission server, a leaked singleton thread of this process started on first use.
// Threads:   every function may be called from any thread.
#ifndef PTPATHWAYS_TRANSPORT_CURVE_H_
#define PTPATHWAYS_TRANSPORT_CURVE_H_

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::transport {

struct CurveKeyPair {
  std::string public_key;  // 40 characters, Z85
  std::string secret_key;  // 40 characters, Z85
  bool empty() const { return public_key.empty() && secret_key.empty(); }
};

// Used for tcp endpoints only: who may open an ipc path is the file system's decision.
struct CurveOptions {
  // Our own pair: a listener's identity, or what a caller presents. Empty: no encryption, loopback only.
  CurveKeyPair keys{};
  // To connect: the listener's public key.
  std::string server_public_key{};
  // To bind: the client public keys admitted.
  std::vector<std::string> allowed_client_keys{};

  bool enabled() const { return !keys.empty(); }
};

Result<CurveKeyPair> GenerateCurveKeyPair();

// What every member of the cluster with this join token uses, to bind and to connect. `token`: "pw1-" and 72 digits of
// which 64 are the secret key in hexadecimal (core._token makes them and checks the rest). Disabled when it is empty.
Result<CurveOptions> CurveOfToken(std::string_view token);

// For the user of a caller whose connection to the controller was refused: what to look at.
std::string RefusedText(std::string_view endpoint, const CurveOptions& curve);

// True when only processes of this machine can reach `endpoint`: ipc, inproc, and tcp on 127.0.0.0/8, [::1] or
// localhost. Anything that cannot be judged (interface names, wildcards, other host names) is false.
bool IsLoopback(std::string_view endpoint);

// OK when `endpoint` is loopback or `curve` is enabled; otherwise PERMISSION_DENIED, saying what to do.
Status CheckEndpointAllowed(std::string_view endpoint, const CurveOptions& curve);

// The domain of endpoints that need no key (ipc paths) on sockets that use keys elsewhere.
inline constexpr std::string_view kOpenDomain = "pw-open";

// Makes the process's admission server accept `client_public_keys` in `domain`, and nothing else there.
Status AllowCurveClients(const std::string& domain, const std::vector<std::string>& client_public_keys);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_CURVE_H_
