// Names on data connections: "c/<client>" and "w/<host's name>", with the number of the peer's session with the
// controller and a code that only the controller and the host that is called can make. A host has a key of its own, so
// what it knows, or hears of its callers, names nobody at another host.
//
// Ownership: values. Threads: pure functions.
#ifndef PTPATHWAYS_WIRE_IDENTITY_H_
#define PTPATHWAYS_WIRE_IDENTITY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::wire {

struct Identity {
  std::string name;      // "c/3", "w/host0"
  uint64_t session = 0;  // no two peers of a cluster ever have the same
};

// Host names are at most this long, so that an identity is a routing id.
inline constexpr size_t kMaxNameBytes = 128;

// The key of the host `listener`, made of a secret that only the controller has.
std::string ListenerKey(std::string_view secret, const Identity& listener);
// "<name>/<session>/<code>". `key`: that of the host which is called.
std::string IdentityText(std::string_view key, const Identity& identity);
// The identity that `text` is; PERMISSION_DENIED when it was not made with `key`.
Result<Identity> CheckIdentity(std::string_view key, std::string_view text);

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_IDENTITY_H_
