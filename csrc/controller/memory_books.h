// MemoryBooks: what lies on each device, what runs in flight need beside it, and what a request would add.
//
// They decide nothing: who waits, who goes next and whose buffers make room is the ledger's (memory_ledger.h).
//
// A pure table. Ownership: owned by MemoryLedger. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_BOOKS_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_BOOKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/controller/memory_request.h"

namespace pathways::controller {

// What a worker is told to move between a device and the host's memory.
struct MemoryOrder {
  uint32_t host = 0;
  bool restore = false;  // else spill
  std::vector<uint64_t> buffers;
};

class MemoryBooks {
 public:
  enum class Place : uint8_t { kDevice, kLeaving, kStaged };
  // One host's part of a logical buffer.
  struct Entry {
    int64_t bytes = 0;     // per shard
    uint64_t named = 0;    // when last named, in ticks: one for each Evaluate
    uint64_t seen = 0;     // the tick that counted it
    uint32_t device = 0;   // of its first shard here
    uint32_t missing = 0;  // shards that have not been put yet
    int32_t pins = 0;      // messages that hold it in place
    Place place = Place::kDevice;
    std::vector<uint32_t> more_devices;

    int64_t total() const { return bytes * static_cast<int64_t>(1 + more_devices.size()); }
    template <typename Visit>
    void ForDevices(const Visit& visit) const {
      visit(device);
      for (const uint32_t more : more_devices) visit(more);
    }
    bool IsOn(uint32_t asked) const {
      bool here = false;
      ForDevices([&](uint32_t one) { here = here || one == asked; });
      return here;
    }
  };
  struct Host {
    bool limited = false;
    uint32_t first_device = 0, device_count = 0;
    int64_t staging_limit = 0;
    int64_t staged = 0;  // spilled, or on the way
    std::unordered_map<uint64_t, Entry> buffers;
  };
  struct Device {
    int64_t limit = 0, used = 0, running = 0;
    int64_t leaving = 0;  // part of `used` that is being spilled
    uint32_t host = 0;
    uint32_t closed_for = 0;  // the client that is next here; nobody else gets more
    // Of the request that was evaluated last:
    bool touched = false;
    int64_t arguments = 0, restored = 0, made = 0, donated = 0, scratch = 0;
    int64_t asked() const { return restored + (made > donated ? made - donated : 0) + scratch; }
  };

  // As MemoryLedger's.
  void AddHost(uint32_t host, uint32_t first_device, std::span<const int64_t> limits, int64_t staging_limit);
  void RemoveHost(uint32_t host);
  bool limited(uint32_t host) const { return host < hosts_.size() && hosts_[host].limited; }

  // --- a request that is looked at
  // Adds up what it means for each device that it touches. False when an argument is on its way out. Unless it is
  // `thorough`, residents of a host from which nothing is away are left out: they change nothing then.
  bool Evaluate(const MemoryRequest& request, bool thorough);
  // Of the request that was evaluated last: whether it fits now, or not even on empty devices.
  bool Fits(uint32_t client) const;
  bool NeverFits() const;
  const std::vector<uint32_t>& touched() const { return touched_; }
  // Whether it names the buffer; also one that it gives up.
  bool IsNamed(const Entry& entry) const { return entry.named == clock_; }
  // Notes when residents were last named, which Evaluate leaves to this.
  void AgeResidents();

  // --- changes
  // The request that was evaluated last is granted. What has to come back for it from host memory goes to `orders`.
  void Enter(const MemoryRequest& request, std::vector<MemoryOrder>* orders);
  void GiveUp(const MemoryRequest& request);
  void Pin(const MemoryRequest& request, int by);
  // Counts so many bytes less on a device, or again.
  void Discount(uint32_t device, int64_t bytes) { devices_[device].used -= bytes; }
  void Free(uint32_t host, std::span<const uint64_t> buffers);
  void FreeClient(uint32_t client);
  void EndRun(uint64_t run);
  void EndPart(uint64_t run, uint32_t host);
  void Leave(const MemoryOrder& order);  // its buffers are about to be spilled
  void Spilled(uint32_t host, std::span<const uint64_t> buffers);
  void CloseFor(uint32_t device, uint32_t client) { devices_[device].closed_for = client; }
  void OpenFrom(uint32_t client);
  // Differs when something that did not fit may fit now.
  uint64_t generation() const { return generation_; }
  void Freed() { ++generation_; }

  // --- to look at
  const std::vector<Host>& hosts() const { return hosts_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  // One argument of a request; whether it is on its way out.
  bool EvaluateArgument(Host& host, uint64_t argument);
  void Touch(uint32_t device);
  // Back from host memory; added to the order if it was there.
  void Return(Host& host, uint64_t argument, MemoryOrder& order);
  void EnterMade(const MemoryRequest::Made& made, const std::vector<uint32_t>& devices);
  void Erase(Host& host, uint64_t id);
  void Forget(Host& host, const Entry& entry);

  std::vector<Host> hosts_;                                                    // by host
  std::vector<Device> devices_;                                                // by device
  std::unordered_map<uint64_t, std::vector<MemoryRequest::Scratch>> running_;  // by run
  std::vector<std::weak_ptr<Residents>> residents_;
  std::vector<uint32_t> touched_;
  uint64_t clock_ = 0;
  uint64_t generation_ = 1;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_BOOKS_H_
