// PeerNames: what peers are called, which of those names are over, and what this process calls itself.
//
// A host that this process called is "to/<host name>". A caller is called by the name in its identity ("c/<client>" or
// "w/<host>"; wire/identity.h), which belongs to one session after another, never to an earlier one again. The socket
// has a name of its own for each connection, the route: of a caller it is the identity.
//
// A pure state machine. Ownership: plain value. Threads: none inside; its user's lock guards it.
#ifndef PTPATHWAYS_DATAPLANE_PEER_NAMES_H_
#define PTPATHWAYS_DATAPLANE_PEER_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "csrc/base/status.h"
#include "csrc/transport/frame.h"
#include "csrc/wire/identity.h"

namespace pathways::dataplane {

// What the controller's WELCOME says of a peer's data connections.
struct Membership {
  std::string cluster;
  std::string identity;  // of a process outside a cluster, among others of its group: "w/<name>"
  std::string key;       // hosts only: checks the identities of callers. In a group, without a session, names are
                         // believed
  uint64_t session = 0;
};

// Finds by a string_view without making a string of it.
struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};
template <typename T>
using ByName = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

// Who calls by this route and says so in `hello`. PERMISSION_DENIED for somebody else.
Result<wire::Identity> CallerOf(const Membership& membership, std::string_view route, const transport::Frame& hello);

class PeerNames {
 public:
  static std::string OfHost(const std::string& host) { return "to/" + host; }
  static std::string OfClient(uint32_t client) { return "c/" + std::to_string(client); }

  // --- by route
  // Of a connection that is to be made: a caller that could guess it would take the connection over.
  std::string NewRoute();
  static bool IsOurs(std::string_view route) { return route.starts_with("to/"); }
  void Add(const std::string& route, const std::string& name) { of_route_[route] = name; }
  void Remove(const std::string& route) { of_route_.erase(route); }
  // Null: of nobody, or of a connection that was made anew since.
  const std::string* Find(std::string_view route) const {
    const auto at = of_route_.find(route);
    return at == of_route_.end() ? nullptr : &at->second;
  }

  // --- sessions of callers
  // FAILED_PRECONDITION: that session of the name is over. Otherwise all before it are from now on.
  Status Enter(const wire::Identity& identity);
  void EndSession(const std::string& name, uint64_t session);

  // --- peers that are gone
  // `link`: the number of the link that it had; 0: none.
  void Leave(const std::string& name, Status status, uint64_t link) { gone_[name] = {std::move(status), link}; }
  // Why the peer is gone; OK: it is not.
  Status Gone(std::string_view name) const {
    const auto at = gone_.find(name);
    return at == gone_.end() ? OkStatus() : at->second.status;
  }
  void Return(const std::string& name) { gone_.erase(name); }
  // The same, by a hello with this link. False: it is the former process, which does not know yet that it is gone.
  bool Return(const std::string& name, uint64_t link);

  // --- this process at hosts, in a cluster
  void SetIdentityAt(const std::string& host, std::string identity) { identities_[host] = std::move(identity); }
  Result<std::string> IdentityAt(const std::string& host) const;

 private:
  struct Left {
    Status status;
    uint64_t link;
  };
  ByName<std::string> of_route_;
  uint64_t next_route_ = 1;
  ByName<uint64_t> sessions_;  // by caller, gone or not: the first that it may have
  ByName<Left> gone_;
  ByName<std::string> identities_;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_PEER_NAMES_H_
