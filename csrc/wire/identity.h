// Names on data connections: "c/<client>" and "w/<host's name>", with the number of the peer's session with the
// controller and a code that only controller and hosts can make. Who knows a name was given it by the controller.
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

// "<name>/<session>/<code>". `key`: the cluster's, which its hosts have.
std::string IdentityText(std::string_view key, const Identity& identity);
// The identity that `text` is; PERMISSION_DENIED when it was not made with `key`.
Result<Identity> CheckIdentity(std::string_view key, std::string_view text);

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_IDENTITY_H_
