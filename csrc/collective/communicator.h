// Communicator: the collectives of a host that belongs to an island over several hosts.
//
// The members of a group that run on this host meet here; the last one to arrive works for all of them, together with
// the other hosts, while the rest wait. A device's meetings are counted within a launch, so that the n-th meeting of
// one device is the n-th of all.
//
// A gang that fails on this host, fails for all its devices here and at once: what meets later in it gets the same
// error.
//
// Ownership: borrows the data plane, which must outlive it; operands are borrowed for the call.
// Threads:   Meet is called on threads of the plugin, one for each device at a time, and blocks. Everything else is
//            short and may be called from any thread.
// Locks:     mutex_ guards all tables; it is not held while bytes move.
#ifndef PTPATHWAYS_COLLECTIVE_COMMUNICATOR_H_
#define PTPATHWAYS_COLLECTIVE_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/collective/exchange.h"
#include "csrc/collective/gang.h"
#include "csrc/collective/lanes.h"
#include "csrc/collective/layout.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/hlo/collective.h"

namespace pathways::collective {

struct CommunicatorOptions {
  std::string cluster;
  uint32_t host = 0;                         // this one's number
  uint64_t shared_memory_bytes = 256 << 20;  // for lanes to hosts of this machine; 0: messages only
  LaneShape lane{};
  std::chrono::milliseconds limit{300000};  // of one wait for another host or device
  std::chrono::microseconds spin{20};       // before a wait sleeps
};

class Communicator : public hlo::CollectiveBackend {
 public:
  // `data` carries what goes to other machines; nullptr: all hosts are on this one.
  explicit Communicator(CommunicatorOptions options, dataplane::DataPlane* data = nullptr);
  ~Communicator() override;  // Stop; no Meet may be running or begin

  // Another host. Idempotent; chunks of a host that has not been named yet are kept.
  void SetHost(HostInfo host) { lanes_->SetHost(std::move(host)); }

  // The device's next collectives belong to this gang, as that of `shard`; until End.
  void Begin(int device, const std::shared_ptr<const Gang>& gang, uint32_t shard);
  void End(int device);

  Status Meet(int device, const hlo::CollectiveOp& op, std::span<const hlo::CollectiveOperand> operands) override;

  // Every gang with that host fails with this status, now and later.
  void HostLost(uint32_t host, const Status& status);
  // Every collective of that run fails, also those that have not begun (so many runs are remembered: kAbortedMax).
  void Abort(uint64_t run, const Status& status);
  // All waits end, and nothing begins any more.
  void Stop(const Status& status);

  // Who waits for whom, since longer than `older_than`.
  std::vector<Stall> Stalls(std::chrono::milliseconds older_than) const;
  // Sent to other hosts in collectives that have ended.
  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kAbortedMax = 1024;
  using Clock = std::chrono::steady_clock;

  // A launch on this host.
  struct Launch {
    std::shared_ptr<const Gang> gang;
    std::vector<uint32_t> devices;  // of this host that take part
    std::vector<uint32_t> left;     // of these, those that have ended
    int active = 0;                 // those that are between Begin and End
    std::atomic<bool> failed{false};
    Status status;  // guarded by mutex_, set before `failed`
  };
  struct Part {
    uint32_t device = 0;
    LocalPart local;
  };
  // A collective that the members of one group on this host meet in.
  struct Meeting {
    std::shared_ptr<Launch> launch;
    const hlo::CollectiveOp* op = nullptr;  // of the first to arrive, who stays until the end
    Layout layout;
    uint32_t ordinal = 0;
    std::vector<Part> parts;
    Clock::time_point since;
    const Exchange* exchange = nullptr;  // while it runs
    bool running = false;
    bool done = false;
    Status status;
    std::condition_variable changed;
  };
  struct Device {
    std::shared_ptr<Launch> launch;
    uint32_t shard = 0;
    uint32_t ordinal = 0;  // of the next meeting
  };
  struct MeetingKey {
    LaunchId launch;
    uint32_t ordinal;
    uint32_t group;
    auto operator<=>(const MeetingKey&) const = default;
  };

  std::shared_ptr<Launch> LaunchOf(const std::shared_ptr<const Gang>& gang) PW_REQUIRES(mutex_);
  void Fail(Launch& launch, const Status& status) PW_REQUIRES(mutex_);
  Status Join(Meeting& meeting, UniqueLock& lock) PW_REQUIRES(mutex_);
  // Lets go of `lock`, which is on mutex_, while bytes move: more than the analysis can follow.
  Status Work(Meeting& meeting, UniqueLock& lock) PW_REQUIRES(mutex_) PW_NO_THREAD_SAFETY;
  Status Exchanged(Meeting& meeting);
  Status WhoLeft(const Launch& launch, const Meeting& meeting) const PW_REQUIRES(mutex_);

  const CommunicatorOptions options_;
  const std::shared_ptr<Lanes> lanes_;
  std::atomic<uint64_t> bytes_sent_{0};

  mutable std::mutex mutex_;
  std::map<int, Device> devices_ PW_GUARDED_BY(mutex_);
  std::map<LaunchId, std::shared_ptr<Launch>> launches_ PW_GUARDED_BY(mutex_);
  std::map<MeetingKey, std::shared_ptr<Meeting>> meetings_ PW_GUARDED_BY(mutex_);
  std::map<uint32_t, Status> lost_ PW_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Status> aborted_ PW_GUARDED_BY(mutex_);
  std::deque<uint64_t> aborted_order_ PW_GUARDED_BY(mutex_);
  Status stopped_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_COMMUNICATOR_H_
