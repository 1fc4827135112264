// Session::Impl: tables of what is in flight, and the handlers that complete it. Private to this room.
//
// Threads: handlers run on whichever thread delivers a message. Locks: mutex_ guards every table; events are set and
// messages sent without it.
#ifndef PTPATHWAYS_CLIENT_SESSION_IMPL_H_
#define PTPATHWAYS_CLIENT_SESSION_IMPL_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "csrc/base/clock.h"
#include "csrc/base/host_memory.h"
#include "csrc/base/interrupt.h"
#include "csrc/base/waits.h"
#include "csrc/client/fetches.h"
#include "csrc/client/session.h"
#include "csrc/client/upload_memory.h"
#include "csrc/dataplane/data_plane.h"

namespace pathways::client {

struct Session::Impl : public dataplane::DataSink {
  struct PendingRun {
    std::shared_ptr<Event> done;
    uint32_t host = 0;
    std::shared_ptr<const std::string> what;
    std::shared_ptr<const std::vector<uint32_t>> hosts = nullptr;  // all that take part, when there are several
    int64_t since_ms = NowMs();
  };
  struct PendingSlice {
    std::shared_ptr<Event> done;
    std::shared_ptr<Slice> slice;
  };
  struct PendingProgram {
    std::shared_ptr<Event> ready;
    std::set<uint32_t> waiting_for;  // hosts
    Status first_error;
    std::shared_ptr<const std::string> what = nullptr;
    int64_t since_ms = NowMs();
  };
  struct PendingQuery {
    std::shared_ptr<Event> done;
    std::shared_ptr<QueryAnswer> answer;
    uint32_t host = 0;
  };
  struct PendingFiles {
    std::shared_ptr<Event> done;
    std::shared_ptr<FileOperation::Outcome> outcome;
    uint32_t host = 0;
  };
  struct PendingFunction {
    std::shared_ptr<Event> compiled;
    std::shared_ptr<const std::string> what;
    int64_t since_ms = NowMs();
    std::set<uint32_t> waiting_for;  // hosts
    Status first_error;
    std::vector<TensorType> outputs;
    std::string output_sharding;
  };
  struct Declared {
    std::shared_ptr<HostMemory> bytes;
    uint64_t received = 0;
  };

  explicit Impl(SessionOptions session_options) : options(std::move(session_options)) {}

  Status Open(const std::function<Status()>& still_wanted);
  // UNAVAILABLE when the controller has not answered in time.
  Status AwaitWelcome(const std::function<Status()>& still_wanted);
  void OnMessage(std::string head, std::vector<Payload> payloads);
  Status Handle(const wire::Head& head, std::vector<Payload>& payloads);
  // PERMISSION_DENIED when the answer to `request` comes from another host than the one that was asked. `from`: the
  // header's sequence.
  Status CheckAnswer(uint64_t request, uint64_t from) const;
  void OnDone(const wire::Done& done);
  void OnFetched(const wire::Fetched& fetched);
  void OnRegistered(const wire::Registered& answer);
  void OnPlanReady(const wire::PlanReady& answer);
  void OnSliceGranted(const wire::SliceGranted& answer);
  void OnStored(const wire::Stored& answer);
  void OnReply(const wire::Reply& reply, std::vector<Payload>& payloads);
  void OnHosts(std::vector<wire::HostDescription> hosts, const std::vector<wire::IdentityAt>& identities);
  void ConnectToHosts(const std::vector<wire::HostDescription>& hosts);
  void OnHostLost(const wire::HostLost& lost);
  void OnControllerLost(const Status& reason);
  // dataplane::DataSink
  void OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
               transport::BulkLease lease) override;
  void OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) override;
  Status MaySend(std::string_view peer, uint64_t key) const override;
  void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) override;

  // Fails everything that `predicate(host)` covers.
  template <typename Predicate>
  void FailPending(Predicate predicate, const Status& status);

  uint64_t MintIds(uint64_t count = 1) { return next_id.fetch_add(count); }
  template <typename Body>
  Status Send(const Body& body, std::vector<Payload> payloads = {}) {
    std::string head = wire::Encode(body);
    if (head.size() > wire::kHeaderBytes + wire::kMaxBodyBytes) {
      return InvalidArgument("expected a message of at most " + std::to_string(wire::kMaxBodyBytes >> 20) +
                             " MiB, got " + std::string(wire::TypeName(wire::TypeOf(head))) + " of " +
                             std::to_string(head.size()) + " bytes: give it fewer arguments at a time");
    }
    return link->Send(std::move(head), std::move(payloads));
  }
  // OK when the device exists and its host is alive; gives the host.
  Result<uint32_t> HostOf(uint32_t device) const;
  std::string HostName(uint32_t host) const;
  // What to say to those who use what this session made once it is closed.
  std::string LeftText() const;
  // Waits until `has_room()`, or until a Ctrl-C comes.
  template <typename Predicate>
  void WaitForRoom(std::unique_lock<std::mutex>& lock, const char* what, Predicate has_room);
  // Makes a logical buffer and hands the PUT of each shard, which names the shard's host, to `send`.
  Result<std::shared_ptr<LogicalBuffer>> SendPuts(
      const std::shared_ptr<Session>& session, const std::vector<uint32_t>& devices, const TensorType& type,
      const std::function<Status(size_t shard, uint32_t host, wire::Put& put)>& send);
  // OK when the host is there and holds values.
  Status CheckAlive(uint32_t host) const;
  // Waits while the window of runs is full, then enters one.
  void EnterRun(uint64_t run, PendingRun pending);
  void LeaveRun(uint64_t run);
  Status Upload(uint64_t id, uint32_t host, std::shared_ptr<HostMemory> bytes);
  const std::shared_ptr<UploadMemory> upload_memory = std::make_shared<UploadMemory>();
  void FlushFrees();
  // Before a run: sends what is kept back when it is enough to matter to the run's memory.
  void FlushLargeFrees();
  // Sends a question of which `host` is to answer (UINT32_MAX: the controller) and waits.
  Result<QueryAnswer> Ask(wire::Query query, uint32_t host, const std::string& whom, std::chrono::milliseconds timeout);
  // The same without waiting.
  template <typename Body>
  Result<Question> Inquire(Body body, std::vector<Payload> payloads);
  Status RegisterOn(Function& function, uint64_t id, const FunctionSpec& spec, std::vector<uint32_t> devices,
                    std::vector<uint32_t>& hosts);

  const SessionOptions options;
  std::unique_ptr<Link> link;
  // Made while messages arrive already. Null before, and constant afterwards.
  std::atomic<dataplane::DataPlane*> data{nullptr};
  std::unique_ptr<dataplane::DataPlane> data_owner;
  std::shared_ptr<Event> welcomed = Event::Make();

  // Constant after welcomed:
  std::string cluster;
  uint32_t client_index = 0;
  dataplane::Membership membership;
  uint32_t heartbeat_interval_ms = 500;

  std::atomic<uint64_t> next_id{0};
  std::atomic<bool> closed{false};
  std::atomic<uint64_t> uploaded{0}, fetched{0}, run_count{0}, copies{0}, waits{0}, wait_ns{0};

  mutable std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  std::optional<transport::ClusterKeys> rotated_keys;  // in place of those of the options
  std::vector<wire::HostDescription> hosts;
  std::unordered_map<uint32_t, std::string> identities;  // of this client, by host
  std::vector<std::string> lost_reasons;                 // by host; empty while alive
  std::vector<uint32_t> device_to_host;
  std::unordered_map<uint64_t, PendingRun> runs;
  Fetches fetches;
  std::unordered_map<uint64_t, PendingQuery> queries;
  std::unordered_map<uint64_t, PendingFiles> files;
  std::unordered_map<uint64_t, PendingFunction> functions;
  uint32_t code_room = 100;  // of the fullest host, as far as it was told since this was taken, in percent
  std::unordered_map<uint64_t, Status> failed_buffers;  // until their handles are dropped
  std::unordered_map<uint64_t, Declared> declared;
  std::map<uint32_t, std::vector<uint64_t>> frees;  // by host
  uint64_t free_bytes = 0;                          // of the buffers in it, all shards
  std::unordered_map<uint64_t, PendingProgram> programs;
  std::unordered_map<uint64_t, PendingSlice> slices;
  std::vector<uint64_t> unregistered;
  std::vector<uint64_t> programs_gone;
  uint64_t upload_bytes_pending = 0;
  Status controller_lost;
};

// What a wait for a place in the window of runs is for.
inline constexpr char kRunsAhead[] = "earlier runs: as many as may be under way have not finished";

// While one lives, this thread is in a callback of a session, which cannot end there: its threads are waited for.
class InCallback {
 public:
  InCallback() { ++depth_; }
  ~InCallback() { --depth_; }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
  static bool on_this_thread() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

// How long a wait sleeps before it looks for a Ctrl-C.
inline constexpr std::chrono::milliseconds kInterruptSlice{50};
// Uploads not yet handed over, before Put waits.
inline constexpr uint64_t kMaxUploadBytesPending = uint64_t{1} << 30;
// Frees of small buffers that are kept back, at most until the next tick.
inline constexpr size_t kFreeBatch = 64;
inline constexpr uint64_t kFreeBytesKept = uint64_t{1} << 20;

template <typename Predicate>
void Session::Impl::WaitForRoom(std::unique_lock<std::mutex>& lock, const char* what, Predicate has_room) {
  // Bounds that keep a tight loop from filling memory, not needs: so a Ctrl-C passes them, and the loop then ends in
  // its own code. The thread that waits may be one of PyTorch/XLA's, on behalf of the main thread.
  const uint64_t signals = interrupt::Count();
  std::optional<waits::Entry> entry;
  while (!changed.wait_for(lock, kInterruptSlice, has_room)) {
    if (interrupt::Count() != signals) return;
    if (!entry) entry.emplace(what);
  }
}

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_SESSION_IMPL_H_
