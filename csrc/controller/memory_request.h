// What one message needs of the devices' memory, as the controller's ledger is asked (memory_ledger.h).
//
// Ownership: values. Threads: those of their owner.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_REQUEST_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace pathways::controller {

// Buffers that many messages in a row name, so that the books need not look at each of them every time.
struct Residents {
  std::vector<uint64_t> buffers;  // distinct
  uint64_t named = 0;             // when last named, in the books' ticks
  bool known = false;             // to the books
};

// What one message needs. Devices are cluster-wide numbers.
struct MemoryRequest {
  uint64_t id = 0;  // the run, or the buffer that is put or copied
  uint32_t client = 0;
  bool is_run = false;                   // PartDone will follow
  std::vector<uint32_t> hosts;           // that take part
  std::vector<uint64_t> arguments;       // buffers that must be on their devices; may repeat
  std::vector<uint64_t> donated;         // of these, given up
  std::shared_ptr<Residents> residents;  // further arguments; never given up
  struct Made {
    uint64_t buffer = 0;
    int64_t bytes = 0;                            // per shard
    uint32_t first_device = 0, device_count = 0;  // its part of `devices`
    // Of its shards on a host, how many come with other messages. Until all have come it stays where it is.
    uint32_t others_here = 0;
  };
  std::vector<Made> made;
  std::vector<uint32_t> devices;  // of what is made, each host's together
  struct Scratch {
    uint32_t device = 0;
    int64_t bytes = 0;  // needed only while running
  };
  std::vector<Scratch> scratch;

  void Clear() {
    id = 0;
    client = 0;
    is_run = false;
    hosts.clear();
    arguments.clear();
    donated.clear();
    residents.reset();
    made.clear();
    devices.clear();
    scratch.clear();
  }
  // A buffer of one shard.
  void MakeOne(uint64_t buffer, int64_t bytes, uint32_t device, uint32_t others_here = 0) {
    made.push_back({buffer, bytes, static_cast<uint32_t>(devices.size()), 1, others_here});
    devices.push_back(device);
  }
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_REQUEST_H_
