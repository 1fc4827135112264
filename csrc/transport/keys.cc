#include "csrc/transport/keys.h"

#include <cstring>
#include <vector>

#include "csrc/base/sha256.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::transport {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kCheckDigits = 8;                                  // at a token's end
constexpr std::string_view kTokens[] = {"pw1c-", "pw1w-", "pw1-"};  // by role; the controller's is the cluster's
// What a token of a role holds besides its own secret key: the public keys of
constexpr Role kOthers[2][2] = {{Role::kController, Role::kWorker}, {Role::kController, Role::kClient}};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The bytes before the check digits; empty when `digits` are none of `size` bytes.
std::string Unhex(std::string_view digits, size_t size) {
  if (digits.size() != 2 * size + kCheckDigits) return "";
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    const int high = HexDigit(digits[2 * i]), low = HexDigit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return "";
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

Result<std::string> Z85(std::string_view key) {
  char text[41] = {};
  if (Zmq().z85_encode(text, reinterpret_cast<const uint8_t*>(key.data()), key.size()) == nullptr) {
    return ZmqError("cannot make CURVE keys of the join token");
  }
  return std::string(text);
}

Result<std::string> PublicOf(const std::string& secret_z85) {
  char text[41] = {};
  if (Zmq().curve_public(text, secret_z85.c_str()) != 0) return ZmqError("cannot make CURVE keys of the join token");
  return std::string(text);
}

std::string SecretOf(std::string_view cluster_secret, Role role) {
  const Sha256Digest digest = HmacSha256(cluster_secret, "ptpathways " + std::string(RoleName(role)));
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Says nothing of the text itself: errors end up in logs.
Status Malformed(std::string_view token) {
  return InvalidArgument(
      "a join token must be as `ptpathways token` prints it: pw1-, pw1w- or pw1c- and hexadecimal "
      "digits; got another text of " +
      std::to_string(token.size()) + " characters");
}

}  // namespace

std::string_view RoleName(Role role) {
  constexpr std::string_view kNames[] = {"client", "worker", "controller"};
  return kNames[static_cast<size_t>(role)];
}

CurveOptions ClusterKeys::Curve(Role server) const {
  CurveOptions curve;
  curve.insecure = insecure_;
  if (!enabled()) return curve;
  curve.keys = own_;
  curve.server_public_key = public_[static_cast<size_t>(server)];
  if (role_ == Role::kClient) return curve;
  for (const Role caller : {Role::kWorker, Role::kClient}) {
    curve.allowed_client_keys.emplace_back(public_[static_cast<size_t>(caller)], std::string(RoleName(caller)));
  }
  return curve;
}

Result<ClusterKeys> KeysOfToken(std::string_view token, Role role) {
  ClusterKeys keys;
  keys.role_ = role;
  keys.insecure_ = token == kInsecureToken;
  if (token.empty() || keys.insecure_) return keys;
  if (!ZmqLoaded()) return FailedPrecondition("libzmq is not loaded; call LoadZmq first");
  const size_t own = static_cast<size_t>(role);
  std::string secret, z85;
  if (token.starts_with(kTokens[2])) {
    const std::string cluster = Unhex(token.substr(kTokens[2].size()), kSecretBytes);
    if (cluster.empty()) return Malformed(token);
    for (const Role of : {Role::kClient, Role::kWorker, Role::kController}) {
      PW_ASSIGN_OR_RETURN(std::string text, Z85(SecretOf(cluster, of)));
      PW_ASSIGN_OR_RETURN(keys.public_[static_cast<size_t>(of)], PublicOf(text));
    }
    secret = SecretOf(cluster, role);
    PW_ASSIGN_OR_RETURN(z85, Z85(secret));
  } else if (role != Role::kController && token.starts_with(kTokens[own])) {
    const std::string parts = Unhex(token.substr(kTokens[own].size()), 3 * kSecretBytes);
    if (parts.empty()) return Malformed(token);
    PW_ASSIGN_OR_RETURN(z85, Z85(std::string_view(parts).substr(0, kSecretBytes)));
    PW_ASSIGN_OR_RETURN(keys.public_[own], PublicOf(z85));
    for (size_t i = 0; i < 2; ++i) {
      PW_ASSIGN_OR_RETURN(keys.public_[static_cast<size_t>(kOthers[own][i])],
                          Z85(std::string_view(parts).substr((i + 1) * kSecretBytes, kSecretBytes)));
    }
  } else if (token.starts_with(kTokens[0]) || token.starts_with(kTokens[1])) {
    return Status(Code::kPermissionDenied, "a " + std::string(RoleName(role)) + " needs the cluster's join token" +
                                               (role == Role::kController ? "" : " or a token of its role") +
                                               ", got one of another role; see `ptpathways token --role`");
  } else {
    return Malformed(token);
  }
  keys.own_ = {keys.public_[own], z85};
  return keys;
}

Result<std::string> KeysOfRole(std::string_view token, Role role) {
  if (role == Role::kController || !token.starts_with(kTokens[2])) {
    return InvalidArgument("a token of a worker or client is made of the cluster's join token (pw1-...), got another");
  }
  PW_ASSIGN_OR_RETURN(const ClusterKeys keys, KeysOfToken(token, Role::kController));
  std::string parts = SecretOf(Unhex(token.substr(kTokens[2].size()), kSecretBytes), role);
  const CurveOptions curve = keys.Curve(Role::kController);
  for (const Role other : kOthers[static_cast<size_t>(role)]) {
    std::string text = curve.server_public_key;
    for (const AllowedKey& allowed : curve.allowed_client_keys) {
      if (allowed.role == RoleName(other)) text = allowed.key;
    }
    uint8_t raw[kSecretBytes];
    if (Zmq().z85_decode(raw, text.c_str()) == nullptr) return ZmqError("cannot read a CURVE key");
    parts.append(reinterpret_cast<const char*>(raw), sizeof raw);
  }
  return Hex(parts);
}

bool SpeaksAs(const Frame& frame, Role role) {
  const std::string_view sender = frame.sender();
  return sender.empty() || sender == kSameUser || sender == RoleName(role);
}

}  // namespace pathways::transport
