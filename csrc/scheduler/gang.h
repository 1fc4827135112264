// Gang: the parts of one run that go together, and where they go (paper 4.4).
//
// Ownership: plain values; a shape is shared by every run of a function or program there, and does not change then.
#ifndef PTPATHWAYS_SCHEDULER_GANG_H_
#define PTPATHWAYS_SCHEDULER_GANG_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace pathways::scheduler {

// The devices of one host that take part in a gang.
struct GangPart {
  uint32_t host = 0;
  uint32_t island = 0;
  std::vector<uint32_t> devices;  // cluster-wide
};

// Where a gang runs.
struct GangShape {
  std::vector<GangPart> parts;    // by rising host
  std::vector<uint32_t> islands;  // of the parts, each once
  uint32_t device_count = 0;      // of all parts
  // Keeps `parts` sorted, and the rest in step with them.
  void Add(uint32_t host, uint32_t island, uint32_t device);
};

struct Gang {
  uint64_t run = 0;
  uint32_t client = 0;
  uint64_t work = 0;  // what estimates are kept for: the function or program
  std::shared_ptr<const GangShape> shape;
  uint64_t arrival = 0;  // place among all clients' messages, for first come first served
};

}  // namespace pathways::scheduler

#endif  // PTPATHWAYS_SCHEDULER_GANG_H_
