#include "csrc/wire/identity.h"

#include <charconv>

#include "csrc/base/sha256.h"

namespace pathways::wire {
namespace {

constexpr size_t kCodeDigits = 32;  // 128 bits

}  // namespace

std::string ListenerKey(std::string_view secret, const Identity& listener) {
  const Sha256Digest key = HmacSha256(secret, "data key of " + listener.name + "/" + std::to_string(listener.session));
  return {key.begin(), key.end()};
}

std::string IdentityText(std::string_view key, const Identity& identity) {
  const std::string text = identity.name + "/" + std::to_string(identity.session);
  return text + "/" + Hex(HmacSha256(key, "data connection of " + text)).substr(0, kCodeDigits);
}

Result<Identity> CheckIdentity(std::string_view key, std::string_view text) {
  // Says nothing of the text: it may be another's secret.
  const Status refused(Code::kPermissionDenied,
                       "a data connection must have the name that the controller gave its peer, got another of " +
                           std::to_string(text.size()) + " bytes");
  const size_t code = text.rfind('/');
  const size_t number = code == std::string_view::npos || code == 0 ? code : text.rfind('/', code - 1);
  if (code == std::string_view::npos || number == std::string_view::npos) return refused;
  Identity identity{std::string(text.substr(0, number)), 0};
  const std::string_view digits = text.substr(number + 1, code - number - 1);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), identity.session);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return refused;
  if (!EqualInConstantTime(text, IdentityText(key, identity))) return refused;
  return identity;
}

}  // namespace pathways::wire
