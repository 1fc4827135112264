// MemoryLedger: the controller's books of every device's memory, and the back-pressure that follows (paper 4.6).
//
// A message that makes buffers (a put, a copy, a run of a function or program) asks before it goes to its workers. What
// fits is entered at once. What does not fit waits; its client's stream waits behind it, other clients' go on. When the
// oldest that wait cannot go on for a while, buffers they do not name are moved to host memory ("spilled") until they
// fit; whoever names such a buffer later gets it back first. So whatever could fit alone on its devices gets its turn.
//
// The books follow the workers' own (store::MemoryAccount): each message changes both alike, and messages reach a
// worker in the order in which they were entered here. Where the two may differ, these count more.
//
// What lies where is MemoryBooks'; here is who waits, what is held, who goes next and whose buffers make room.
//
// A pure state machine: events in, decisions and orders out; time comes as an argument. Ownership: owned by
// controller::ClusterState. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/controller/memory_books.h"
#include "csrc/controller/memory_request.h"

namespace pathways::controller {

struct MemoryOptions {
  // How long the oldest waits before buffers are spilled for it.
  uint64_t spill_after_ms = 200;
  // How long one waits that only its own client's buffers keep out, when they cannot be spilled either. Then it is let
  // through, for its worker to refuse.
  uint64_t refuse_after_ms = 1000;
};

class MemoryLedger {
 public:
  explicit MemoryLedger(MemoryOptions options = {}) : options_(options) {}

  // `limits`: bytes of each device, 0 for no limit. `staging_limit`: bytes of the host's own memory for spilled
  // buffers. A host without limits is not kept in the books at all.
  void AddHost(uint32_t host, uint32_t first_device, std::span<const int64_t> limits, int64_t staging_limit) {
    books_.AddHost(host, first_device, limits, staging_limit);
  }
  void RemoveHost(uint32_t host) { books_.RemoveHost(host); }
  // Whether a message for this host has to ask.
  bool limited(uint32_t host) const { return books_.limited(host); }

  enum class Answer : uint8_t {
    kFits,   // entered; Start or Hold must follow, after the orders of TakeOrders were sent
    kWait,   // remembered; TakeReady names the client when it is worth asking again
    kNever,  // larger than a device: nothing was entered but what is given up; its worker refuses it
  };
  Answer Ask(const MemoryRequest& request, uint64_t now_ms);
  // The message goes to its workers now.
  void Start(const MemoryRequest& request) { books_.GiveUp(request); }
  // It waits for something else first (its turn); its arguments stay where they are.
  void Hold(const MemoryRequest& request);
  // What was held goes now; false when nothing of that id is held.
  bool StartHeld(uint32_t client, uint64_t id);
  bool IsHeld(uint32_t client, uint64_t id) const;
  // The client's message that waits or is held will not go after all.
  void Cancel(uint32_t client);

  // --- what frees memory
  void Free(uint32_t host, std::span<const uint64_t> buffers) { books_.Free(host, buffers); }
  void PartDone(uint64_t run, uint32_t host, bool ok = true);
  // A worker has moved these to host memory (or no longer has them).
  void Spilled(uint32_t host, std::span<const uint64_t> buffers) { books_.Spilled(host, buffers); }
  void DropClient(uint32_t client);

  // --- what is to be done
  bool has_orders() const { return !orders_.empty(); }
  std::vector<MemoryOrder> TakeOrders() { return std::exchange(orders_, {}); }
  // Decides about spilling.
  void Tick(uint64_t now_ms);
  // A client whose waiting message may go on now; each is named once per change of the books.
  std::optional<uint32_t> TakeReady();
  bool has_waiters() const { return !waiters_.empty(); }
  bool is_waiting(uint32_t client) const { return waiters_.contains(client); }

  // --- for the status and tests
  struct DeviceBooks {
    int64_t limit = 0;
    int64_t used = 0;     // by buffers
    int64_t running = 0;  // by runs in flight, beyond buffers
  };
  DeviceBooks books(uint32_t device) const;
  int64_t staged_bytes(uint32_t host) const { return host < books_.hosts().size() ? books_.hosts()[host].staged : 0; }
  // Bytes of a client's buffers on all devices, and those spilled.
  struct ClientBooks {
    int64_t bytes = 0;
    int64_t staged = 0;
  };
  ClientBooks client_books(uint32_t client) const;
  uint64_t spills() const { return spills_; }
  uint64_t restores() const { return restores_; }
  uint64_t waits() const { return waits_; }
  // JSON of a host's devices: [{"limit", "used", "running"}, ...].
  std::string HostJson(uint32_t host) const;

 private:
  struct Waiter {
    MemoryRequest request;
    uint64_t since_ms = 0;
    uint64_t order = 0;       // of arrival
    uint64_t looked_at = 0;   // the generation of the books in which it did not fit
    uint64_t spilled_ms = 0;  // when buffers were last told to make room for it
    bool let_through = false;
  };
  struct Held {
    MemoryRequest request;
    // What it makes in place of what it gives up: not counted until it starts, because only then both change.
    std::vector<MemoryRequest::Scratch> credit;
  };
  struct Missing {
    uint32_t device = 0;
    int64_t bytes = 0;
  };

  // Undoes Hold.
  MemoryRequest TakeHeld(uint32_t client);
  void RemoveWaiter(uint32_t client);
  std::vector<uint32_t> WaitersByAge() const;
  // Makes room for a waiter that nobody older keeps out (memory_spill.cc).
  void MakeRoom(uint32_t client, Waiter& waiter, uint64_t now_ms);
  // Buffers of a host that may be spilled from a device for the client, the first to go first.
  std::vector<uint64_t> Candidates(uint32_t client, uint32_t device) const;
  bool ChooseVictims(uint32_t client, std::vector<Missing> missing, std::vector<MemoryOrder>& orders) const;
  bool OnlyOwnBuffers(uint32_t client, uint32_t device) const;

  const MemoryOptions options_;
  MemoryBooks books_;
  std::map<uint32_t, Waiter> waiters_;                               // by client
  std::map<uint32_t, Held> held_;                                    // by client
  std::unordered_map<uint64_t, std::vector<uint64_t>> let_through_;  // runs, with what they make if they can
  std::vector<MemoryOrder> orders_;
  uint64_t arrivals_ = 0;
  uint64_t spills_ = 0, restores_ = 0, waits_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_
