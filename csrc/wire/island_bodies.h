// Bodies of the messages by which the hosts of an island make one client of their plugins together. They travel on a
// connection of their own, from before the host joins the cluster until it ends: a plugin asks for keys on threads of
// its own, also while the host's other messages wait for it.
//
// Ownership: plain values owning their contents. Threads: plain values.
#ifndef PTPATHWAYS_WIRE_ISLAND_BODIES_H_
#define PTPATHWAYS_WIRE_ISLAND_BODIES_H_

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "csrc/wire/archive.h"
#include "csrc/wire/message.h"

namespace pathways::wire {

// First message of the connection: a host that will take part. Answered when all `hosts` are there.
struct IslandJoin {
  static constexpr Type kType = Type::kIslandJoin;
  std::string build;  // package version
  std::string name;   // of the host, as in its Hello later
  uint64_t pid = 0;
  std::string island;
  uint32_t hosts = 0;  // of the island
  std::string platform;
  std::string plugin;       // what must be equal on all its hosts: the plugin's version, as text
  uint64_t timeout_ms = 0;  // how long the first to come waits for the others
  template <typename A>
  void Fields(A& a) {
    a(build)(name)(pid)(island)(hosts)(platform)(plugin)(timeout_ms);
  }
};

enum class KeyValueKind : uint8_t { kPut = 1, kGet = 2, kTryGet = 3 };

// A plugin's access to the island's key-value store. A kGet is answered when some host has put the key.
struct KeyValue {
  static constexpr Type kType = Type::kKeyValue;
  uint64_t request = 0;  // the host's number for it, from 1
  KeyValueKind kind{};
  std::string key;
  std::string value;        // kPut
  uint64_t timeout_ms = 0;  // kGet
  template <typename A>
  void Fields(A& a) {
    a(request)(kind)(key)(value)(timeout_ms);
  }
};

// The answer to a KEY_VALUE; or, with request 0, to ISLAND_JOIN; or, after that, the news that the island is no more.
struct IslandAnswer {
  static constexpr Type kType = Type::kIslandAnswer;
  uint64_t request = 0;
  Status status;
  uint32_t node = 0;  // this host's number among those of the island
  std::string value;
  template <typename A>
  void Fields(A& a) {
    a(request)(status)(node)(value);
  }
};

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_ISLAND_BODIES_H_
