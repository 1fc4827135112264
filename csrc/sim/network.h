// Network: bulk bytes between simulated hosts. A transfer takes its turn at the sender's interface, then
// size / bandwidth, then the latency. Within a host only the copy itself is charged.
//
// Sender and receiver name a transfer by (receiving host, key), whichever comes first.
//
// Ownership: owns transfers that only one side has announced. Threads: none inside; one thread. Times in ns.
#ifndef PTPATHWAYS_SIM_NETWORK_H_
#define PTPATHWAYS_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/sim/timeline.h"
#include "csrc/sim/value.h"

namespace pathways::sim {

struct NetworkOptions {
  int64_t latency_ns = 0;
  double bytes_per_ns = 0;        // of a host's interface, each direction; 0: no limit (1 GB/s is 1.0)
  double local_bytes_per_ns = 0;  // within a host; 0: no limit
};

class Network {
 public:
  using Arrival = std::function<void(int64_t at, const Status& error)>;

  Network(Timeline* timeline, NetworkOptions options) : timeline_(timeline), options_(options) {}

  // Sends `bytes` once `source` exists; its error travels instead.
  void Send(uint32_t from, uint32_t to, uint64_t key, int64_t bytes, const std::shared_ptr<Value>& source);
  // `arrival` is called once.
  void Receive(uint32_t from, uint32_t to, uint64_t key, Arrival arrival);
  // Bytes that come from outside the cluster's hosts (a client).
  void Upload(uint32_t to, int64_t bytes, Arrival arrival);
  // The time at which `bytes` that leave `from` at `ready` are complete at `to`.
  int64_t Transfer(uint32_t from, uint32_t to, int64_t ready, int64_t bytes);

  // Whoever waits for bytes of this host fails.
  void LoseHost(uint32_t host, const Status& error);
  // Forgets transfers of a client that is gone; their receivers fail.
  void DropClient(uint32_t client, const Status& error);
  size_t unmatched() const { return mail_.size(); }

 private:
  struct Key {
    uint32_t to;
    uint64_t key;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return (key.key * 0x9E3779B97F4A7C15u) ^ key.to; }
  };
  struct Mail {
    uint32_t from = 0;
    bool sent = false;
    int64_t at = 0;
    Status error;
    Arrival arrival;
  };
  void Sent(uint32_t from, uint32_t to, uint64_t key, int64_t at, const Status& error);
  void Deliver(int64_t at, const Status& error, Arrival arrival);
  template <typename Predicate>
  void Fail(Predicate predicate, const Status& error);

  Timeline* const timeline_;
  const NetworkOptions options_;
  std::unordered_map<Key, Mail, KeyHash> mail_;
  std::vector<int64_t> sending_until_;  // by host
  std::vector<char> lost_;              // by host
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_NETWORK_H_
