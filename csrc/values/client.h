// ClientState: a session of the cluster, with devices of a PJRT client and the order of what is done on them.
//
// Ownership: PJRT_Client and everything made through it share one ClientState, which keeps the session alive; so the
//            caller may destroy things in any order.
// Threads:   every method may be called from any thread.
// Locks:     none of its own, its parts have some; one for the table of all clients, a leaf.
#ifndef PTPATHWAYS_VALUES_CLIENT_H_
#define PTPATHWAYS_VALUES_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/values/device_table.h"
#include "csrc/values/fetch_clock.h"
#include "csrc/values/sequencer.h"

namespace pathways::values {

class LiveBuffers;

struct ClientOptions {
  // Device i is bound to cluster device devices[i] for good; empty: every device of every live host, in order.
  std::vector<int64_t> devices;
  // If positive there are so many logical devices instead, which are bound to slices later (Bind), and PyTorch/XLA is
  // the caller: it compiles for one device whatever a slice's size, and every replica that it names is this process.
  int64_t logical_devices = 0;
  // How long a replica's call waits for the other replicas of its gang.
  std::chrono::milliseconds gang_timeout{600'000};
};

class ClientState : public std::enable_shared_from_this<ClientState> {
 public:
  static Result<std::shared_ptr<ClientState>> Create(std::shared_ptr<client::Session> session,
                                                     const ClientOptions& options);
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;
  ~ClientState();

  // The cluster's that this client is attached to now.
  std::shared_ptr<client::Session> session() const { return session_.load(); }
  // Leaves the cluster for that of `session`. Values stay what they are: of the cluster that they were made in.
  // Programs are registered there when they are next executed. Logical devices are no longer bound then. Devices that
  // are bound for good: FAILED_PRECONDITION, with nothing changed, unless both clusters have the same, by number and
  // island.
  Status Attach(std::shared_ptr<client::Session> session);
  bool is_logical() const { return logical_; }
  // Binds a logical device to a slice, given as the cluster's numbers of its devices; to none if there are none.
  // Values that lie elsewhere stay there. INVALID_ARGUMENT: no logical device of that number.
  Status Bind(int64_t id, std::vector<uint32_t> devices);
  Sequencer& sequencer() const { return *sequencer_; }
  LiveBuffers& live() const { return *live_; }
  const DeviceTable& devices() const { return devices_; }
  FetchClock& fetch_clock() { return fetch_clock_; }
  const std::string& platform_version() const { return platform_version_; }

 private:
  ClientState(std::shared_ptr<client::Session> session, const ClientOptions& options);

  const bool logical_;
  std::atomic<std::shared_ptr<client::Session>> session_;
  const std::shared_ptr<Sequencer> sequencer_;
  const std::unique_ptr<LiveBuffers> live_;
  std::string platform_version_;
  DeviceTable devices_;
  FetchClock fetch_clock_;
};

// From now on the functions below know it.
void AddClient(const std::shared_ptr<ClientState>& client);
// Attaches every client of this process to the cluster of `session`; true if there was one. Fails as Attach does.
Result<bool> AttachClients(const std::shared_ptr<client::Session>& session);
// The client of this process that has logical devices. FAILED_PRECONDITION: PyTorch/XLA has not made it yet.
Result<std::shared_ptr<ClientState>> LogicalClient();

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_CLIENT_H_
