// Lanes: all lanes of one host, the bells its devices sleep on, and what it knows of the other hosts.
//
// To a host of the same machine a lane is a ring in shared memory that the sender makes; to any other host, and when
// there is no shared memory to be had, it is messages on the data plane. The sender decides when it first uses the
// lane; the receiver looks for both.
//
// Ownership: shared, because the data plane's handler holds a reference. Borrows the data plane until Detach.
// Threads:   any; see lane.h for the lanes themselves.
// Locks:     mutex_ guards the tables; never held while a message is sent.
#ifndef PTPATHWAYS_COLLECTIVE_LANES_H_
#define PTPATHWAYS_COLLECTIVE_LANES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/collective/gang.h"
#include "csrc/collective/lane.h"
#include "csrc/collective/segment.h"
#include "csrc/dataplane/data_plane.h"

namespace pathways::collective {

struct LanesOptions {
  std::string cluster;
  uint32_t host = 0;
  uint64_t shared_memory_bytes = 256 << 20;  // for all rings that this host makes; beyond it lanes are messages
  LaneShape shape;
};

class Lanes : public std::enable_shared_from_this<Lanes> {
 public:
  // `data` may be nullptr: shared memory only.
  static std::shared_ptr<Lanes> Make(LanesOptions options, dataplane::DataPlane* data);
  // The data plane may go away.
  void Detach();

  void SetHost(HostInfo host);
  // "host 3 (trainer-3)"
  std::string NameOf(uint32_t host) const;

  // What a thread of `device` sleeps on.
  Bell* OwnBell(uint32_t device);
  void RingAll();

  // The lane to a device of another host; nullptr when that host cannot be reached yet. UNAVAILABLE: never.
  Result<OutLane*> Out(uint32_t device, uint32_t to_host, uint32_t to_device);
  // The lane from there; it may have no sender yet.
  InLane* In(uint32_t from_host, uint32_t from_device, uint32_t device);
  // Looks whether the sender has made a ring.
  void Look(InLane* lane, uint32_t from_host, uint32_t from_device, uint32_t device);

 private:
  static constexpr uint32_t kBells = 63;
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // own device, other host, its device
  struct Home {                                          // a host's bells, as the rest of its segment
    Bell bells[kBells];
  };
  struct Peer {
    HostInfo info;
    std::unique_ptr<Segment> home;
    std::chrono::steady_clock::time_point sought{};  // when its home was first looked for
  };

  Lanes(LanesOptions options, dataplane::DataPlane* data);
  std::string HomeName(uint32_t host) const;
  std::string RingName(uint32_t from_host, uint32_t from_device, uint32_t to_host, uint32_t to_device) const;
  Bell* PeerBell(uint32_t host, uint32_t device) PW_REQUIRES(mutex_);
  Result<std::unique_ptr<OutLane>> MakeRing(const Key& key, Bell* bell) PW_REQUIRES(mutex_);
  Result<std::unique_ptr<OutLane>> MakeMessages(const Key& key) PW_REQUIRES(mutex_);
  Status Send(uint32_t host, transport::Frames frames);
  Status OnMessage(std::string_view peer, const wire::Head& head, transport::Frames& frames);
  Status Handle(std::string_view peer, const wire::Head& head, transport::Frames& frames);
  void HandleEarly();
  // INVALID_ARGUMENT unless `peer` is the connection of that host.
  Status CheckSender(std::string_view peer, uint32_t host) const;

  const LanesOptions options_;
  std::unique_ptr<Segment> home_;
  std::unique_ptr<Home> private_home_;  // when there is no shared memory
  Home* bells_ = nullptr;

  mutable std::mutex mutex_;
  dataplane::DataPlane* data_ PW_GUARDED_BY(mutex_);
  std::map<uint32_t, Peer> peers_ PW_GUARDED_BY(mutex_);
  // From hosts that SetHost has not named yet.
  std::deque<std::pair<std::string, transport::Frames>> early_ PW_GUARDED_BY(mutex_);
  struct Early {
    size_t messages = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Early, std::less<>> early_of_ PW_GUARDED_BY(mutex_);  // what each of them has in early_
  std::map<Key, std::unique_ptr<OutLane>> out_ PW_GUARDED_BY(mutex_);
  std::map<Key, std::unique_ptr<InLane>> in_ PW_GUARDED_BY(mutex_);
  uint64_t ring_bytes_ PW_GUARDED_BY(mutex_) = 0;
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_LANES_H_
