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
// A pure state machine: events in, decisions and orders out; time comes as an argument. Ownership: owned by
// controller::ClusterState. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_
#define PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace pathways::controller {

// Buffers that many messages in a row name, so that the books need not look at each of them every time.
struct Residents {
  std::vector<uint64_t> buffers;  // distinct
  uint64_t named = 0;             // when last named, in the ledger's ticks
  bool known = false;             // to the ledger
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

  void Clear();
  // A buffer of one shard.
  void MakeOne(uint64_t buffer, int64_t bytes, uint32_t device, uint32_t others_here = 0);
};

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
  void AddHost(uint32_t host, uint32_t first_device, std::span<const int64_t> limits, int64_t staging_limit);
  void RemoveHost(uint32_t host);
  // Whether a message for this host has to ask.
  bool limited(uint32_t host) const { return host < hosts_.size() && hosts_[host].limited; }

  enum class Answer : uint8_t {
    kFits,   // entered; Start or Hold must follow, after the orders of TakeOrders were sent
    kWait,   // remembered; TakeReady names the client when it is worth asking again
    kNever,  // larger than a device: nothing was entered but what is given up; its worker refuses it
  };
  Answer Ask(const MemoryRequest& request, uint64_t now_ms);
  // The message goes to its workers now.
  void Start(const MemoryRequest& request);
  // It waits for something else first (its turn); its arguments stay where they are.
  void Hold(const MemoryRequest& request);
  // What was held goes now; false when nothing of that id is held.
  bool StartHeld(uint32_t client, uint64_t id);
  bool IsHeld(uint32_t client, uint64_t id) const;
  // The client's message that waits or is held will not go after all.
  void Cancel(uint32_t client);

  // --- what frees memory
  void Free(uint32_t host, std::span<const uint64_t> buffers);
  void PartDone(uint64_t run, uint32_t host, bool ok = true);
  // A worker has moved these to host memory (or no longer has them).
  void Spilled(uint32_t host, std::span<const uint64_t> buffers);
  void DropClient(uint32_t client);

  // --- what is to be done
  struct Order {
    uint32_t host = 0;
    bool restore = false;  // else spill
    std::vector<uint64_t> buffers;
  };
  bool has_orders() const { return !orders_.empty(); }
  std::vector<Order> TakeOrders();
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
  int64_t staged_bytes(uint32_t host) const { return host < hosts_.size() ? hosts_[host].staged : 0; }
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
  enum class Place : uint8_t { kDevice, kLeaving, kStaged };
  // One host's part of a logical buffer.
  struct Entry {
    int64_t bytes = 0;     // per shard
    uint64_t named = 0;    // when last named, in ticks of clock_
    uint64_t seen = 0;     // the evaluation that counted it
    uint32_t device = 0;   // of its first shard here
    uint32_t missing = 0;  // shards that have not been put yet
    int32_t pins = 0;      // messages that hold it in place
    Place place = Place::kDevice;
    std::vector<uint32_t> more_devices;
    int64_t total() const { return bytes * static_cast<int64_t>(1 + more_devices.size()); }
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
    // Of the request being looked at:
    bool touched = false;
    int64_t arguments = 0, restored = 0, made = 0, donated = 0, scratch = 0;
    int64_t asked() const { return restored + (made > donated ? made - donated : 0) + scratch; }
  };
  struct Waiter {
    MemoryRequest request;
    uint64_t since_ms = 0;
    uint64_t order = 0;       // of arrival
    uint64_t looked_at = 0;   // the generation of the books in which it did not fit
    uint64_t spilled_ms = 0;  // when buffers were last told to make room for it
    bool let_through = false;
  };
  struct Running {
    std::vector<MemoryRequest::Scratch> scratch;
  };
  struct Held {
    MemoryRequest request;
    // What it makes in place of what it gives up: not counted until it starts, because only then both change.
    std::vector<MemoryRequest::Scratch> credit;
  };

  template <typename Visit>
  static void ForDevices(const Entry& entry, const Visit& visit) {
    visit(entry.device);
    for (const uint32_t device : entry.more_devices) visit(device);
  }
  // Adds up what the request means for each device it touches. False when an argument is on its way out. Unless it is
  // `thorough`, residents of a host from which nothing is away are left out: they change nothing then.
  bool Evaluate(const MemoryRequest& request, bool thorough);
  // One argument of it; whether it is on its way out.
  bool EvaluateArgument(Host& host, uint64_t argument);
  // Notes in the books when residents were last named.
  void AgeResidents();
  void Touch(uint32_t device);
  void ResetTouched();
  bool FitsTouched(uint32_t client) const;
  bool NeverFitsTouched() const;
  void Enter(const MemoryRequest& request);
  // Back from host memory; added to the order if it was there.
  void Return(Host& host, uint64_t argument, Order& order);
  void GiveUp(const MemoryRequest& request);
  void Pin(const MemoryRequest& request, int by);
  // Undoes Hold.
  MemoryRequest TakeHeld(uint32_t client);
  void Erase(Host& host, uint64_t id);
  void Forget(Host& host, const Entry& entry);
  void EndRun(uint64_t run);
  void RemoveWaiter(uint32_t client);
  void Freed() { ++generation_; }
  std::vector<uint32_t> WaitersByAge() const;
  // Makes room for a waiter that nobody older keeps out (memory_spill.cc).
  void MakeRoom(uint32_t client, Waiter& waiter, uint64_t now_ms);
  bool ChooseVictims(uint32_t client, std::vector<std::pair<uint32_t, int64_t>> missing, std::vector<Order>& orders);
  bool OnlyOwnBuffers(uint32_t client, uint32_t device) const;

  const MemoryOptions options_;
  std::vector<Host> hosts_;                                          // by host
  std::vector<Device> devices_;                                      // by device
  std::map<uint32_t, Waiter> waiters_;                               // by client
  std::map<uint32_t, Held> held_;                                    // by client
  std::unordered_map<uint64_t, std::vector<uint64_t>> let_through_;  // runs, with what they make if they can
  std::unordered_map<uint64_t, Running> running_;                    // runs that use scratch
  std::vector<std::weak_ptr<Residents>> residents_;
  std::vector<uint32_t> touched_;
  std::vector<Order> orders_;
  uint64_t clock_ = 0;
  uint64_t evaluation_ = 0;
  uint64_t generation_ = 1;
  uint64_t arrivals_ = 0;
  uint64_t spills_ = 0, restores_ = 0, waits_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_MEMORY_LEDGER_H_
