// Releases: what dropped handles leave to be released at the hosts, and when that is sent.
//
// Frees are kept back to be sent together, at most until the session's next tick. They are sent at once when a host's
// batch is full, and before a run when they are large enough to matter to its memory.
//
// A pure state machine. Ownership: plain value. Threads: none inside; the session's lock guards it.
#ifndef PTPATHWAYS_CLIENT_RELEASES_H_
#define PTPATHWAYS_CLIENT_RELEASES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "csrc/client/hosts.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

class Releases {
 public:
  // Buffers of one host that are kept back, and bytes of all.
  static constexpr size_t kMaxKeptBuffers = 64;
  static constexpr uint64_t kMaxKeptBytes = uint64_t{1} << 20;

  struct Batch {
    std::map<uint32_t, std::vector<uint64_t>> buffers;  // by host
    wire::Unregister gone;
  };

  // A buffer with shards of `shard_bytes` on `devices` is dropped. True: a host's batch is full.
  bool Free(uint64_t buffer, uint64_t shard_bytes, const std::vector<uint32_t>& devices, const Hosts& hosts) {
    bytes_ += shard_bytes * devices.size();
    bool full = false;
    uint32_t previous = UINT32_MAX;
    for (const uint32_t device : devices) {
      const uint32_t host = hosts.OfDevice(device);
      if (host == previous) continue;
      previous = host;
      if (!hosts[host].alive) continue;
      std::vector<uint64_t>& of_host = batch_.buffers[host];
      of_host.push_back(buffer);
      full = full || of_host.size() >= kMaxKeptBuffers;
    }
    return full;
  }
  void UnregisterFunction(uint64_t function) { batch_.gone.functions.push_back(function); }
  void UnregisterProgram(uint64_t program) { batch_.gone.programs.push_back(program); }

  // Whether what is kept back matters to the memory of a run.
  bool large() const { return bytes_ >= kMaxKeptBytes; }
  Batch Take() {
    bytes_ = 0;
    return std::exchange(batch_, {});
  }

 private:
  Batch batch_;
  uint64_t bytes_ = 0;  // of all shards of the buffers in it
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_RELEASES_H_
