// Engine: a worker. Walks the messages of the controller in order, enqueues computations on its devices through a PJRT
// plugin without waiting for their data, and reports what completed.
//
// Its thread never sleeps in the plugin. When a device is full, the run at hand and what comes behind it wait
// (DeviceRoom) while what must not wait is heard: lost hosts, aborted runs, the end. It ends what fills the device.
//
// Ownership: owns the plugin's client, the object store, its sockets and threads.
// Threads:   "pw-start" loads the plugin and joins, then ends. "pw-engine" (a Reactor) handles control messages and
// owns everything not marked otherwise; "pw-compile" compiles; "pw-data" (DataPlane) moves bulk bytes and owns
// Incoming; "pw-files"
//            waits for disks. Callbacks of the plugin run on its threads and only post results. Run() waits for signals
//            on the caller's thread.
// Locks:     none of its own.
#ifndef PTPATHWAYS_WORKER_ENGINE_H_
#define PTPATHWAYS_WORKER_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/collective/gang.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/pjrt/client.h"
#include "csrc/plan/places.h"
#include "csrc/plan/walker.h"
#include "csrc/store/object_store.h"
#include "csrc/transport/control_line.h"
#include "csrc/transport/keys.h"
#include "csrc/transport/reactor.h"
#include "csrc/wire/bodies.h"
#include "csrc/worker/buffers.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/engine_watch.h"
#include "csrc/worker/files.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/input_pipelines.h"
#include "csrc/worker/island_link.h"
#include "csrc/worker/launcher.h"
#include "csrc/worker/parking.h"
#include "csrc/worker/plan_host.h"
#include "csrc/worker/program_runs.h"
#include "csrc/worker/programs.h"
#include "csrc/worker/root_causes.h"
#include "csrc/worker/run_times.h"
#include "csrc/worker/runs.h"
#include "csrc/worker/spills.h"

namespace pathways::worker {

struct EngineOptions {
  std::string controller;       // endpoint
  std::string name;             // unique in the cluster
  std::string island;           // empty: an island of its own
  std::string platform;         // "cpu", "cuda", "tpu"
  std::string plugin;           // path of the PJRT plugin
  std::string build;            // package version
  std::string data_endpoint;    // where to bind for bulk data
  std::string advertise;        // the host that peers connect to for it; empty: the one bound
  std::string root;             // below which files are read and written for clients; "/" or empty: anywhere
  std::string scratch_dir;      // for files of the moment; empty: the system's temporary folder
  std::string python;           // the interpreter of input pipelines
  std::string pipeline_script;  // what it runs for one
  std::string cache_dir;        // where compiled programs outlive this process; empty: nowhere
  // oneDNN's library, for convolutions and products on cpu devices; empty: there is none, "off": unwanted.
  std::string kernels;
  transport::ClusterKeys keys;  // made of the join token; without one only private endpoints are used
  pjrt::NamedValues create_options;
  // Hosts whose plugins make one client together, this one included: their collectives are then the plugin's own.
  // 0: this host's plugin has a client of its own.
  uint32_t island_hosts = 0;
  std::chrono::milliseconds island_timeout{60000};  // for all of them to come
  // The create options by which the plugin takes this host's number and the number of hosts; empty: by none.
  std::string node_id_option = "node_id";
  std::string num_nodes_option = "num_nodes";
  int64_t memory_limit_bytes = 0;  // per device; 0: the plugin's own limit, if it has one
  int64_t parent_pid = 0;          // exit when that process is gone
  std::chrono::milliseconds connect_timeout{30000};
  std::chrono::milliseconds transfer_timeout{60000};  // of a transfer to a peer that is silent
  uint64_t max_mappings = 0;                          // base/mappings.h
  bool verbose = false;
};

// Exit codes of a worker process.
inline constexpr int kExitOk = 0, kExitFailed = 1, kExitRefused = 2, kExitOrphaned = 3;

class Engine : private transport::ControlLine::Handler, private Outbox, private CompileListener {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;

  // Joins the cluster and serves until told to stop; the process's exit code. Blocks the calling thread, which must be
  // the process's main thread with no other thread started: it takes SIGTERM and SIGINT over.
  int Run();

 private:
  Status Connect();
  // What takes long, on a thread of its own, so that signals are heeded meanwhile.
  Status Start();
  Status StartDevices();
  // Takes this host's place among the island's hosts and says so in `options`.
  Status JoinIsland(const pjrt::Api& api, pjrt::NamedValues* options);
  std::optional<DiskCache> OpenDiskCache() const;
  Status StartData();
  Status Join();
  void Stop(int exit_code, const std::string& reason);
  bool Orphaned() const;
  // While the controller has not answered HELLO: says so after a while, and gives up in time.
  void LookForAnswer();

  // messages, and those that wait because a device is full (engine_messages.cc)
  void OnMessage(transport::Frames& frames) override;
  Status Take(transport::Frames& frames);
  void Resume();
  // Whether a message is handled at once although the run at hand is parked.
  Result<bool> Admits(const wire::Head& head);
  void OnLost(const Status& status) override;
  Status Handle(const wire::Head& head, transport::Frames& frames);
  void OnHosts(const std::vector<wire::HostDescription>& hosts, const std::vector<wire::IdentityAt>& identities);
  void OnHostLost(const wire::HostLost& lost);
  void OnOwnerGone(const wire::OwnerGone& gone);
  static Status GoneText(uint32_t client);
  void OnTimer();
  // Ends this worker, by name, when its engine's thread hangs.
  void WatchEngine();

  // questions (engine_functions.cc)
  void Answer(const wire::Query& query) override;
  wire::Reply MakeReply(const wire::Query& query, std::string* payload);

  // what this host is doing, for those who wait for it (engine_activity.cc)
  std::vector<wire::Property> Activity() const;
  void AnswerActivity(uint64_t request) const;

  void Compiled(uint64_t program, const Status& status) override { programs_->Compiled(program, status); }

  Status Send(transport::Frames frames) override { return control_->Send(std::move(frames)); }
  bool ending() const override { return exit_code_ >= 0; }

  const EngineOptions options_;
  HostContext context_;
  ClusterView cluster_view_;                 // the engine's thread's
  std::shared_ptr<IslandLink> island_link_;  // null: this host's plugin has a client of its own
  std::unique_ptr<transport::ControlLine> control_;
  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<dataplane::DataPlane> data_;
  std::unique_ptr<Functions> functions_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<Runs> runs_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<PlanHost> plan_host_;
  std::unique_ptr<ProgramRuns> program_runs_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Spills> spills_;
  std::unique_ptr<InputPipelines> pipelines_;
  std::unique_ptr<transport::Reactor> reactor_;

  // Constant after joining:
  bool enqueue_waits_ = false;  // the plugin's Execute sleeps until its arguments have arrived
  std::string cluster_;
  std::optional<EngineWatch> watch_;  // the data thread's, but for Turned

  // Owned by the engine's thread:
  Parking parking_;
  RootCauses root_causes_;
  std::unique_ptr<Completions> completions_;
  std::unique_ptr<Gangs> gangs_;

  // Read by the data thread's timer:
  std::atomic<bool> joined_{false};
  std::atomic<int64_t> asked_ms_{0};  // when HELLO was sent
  std::atomic<bool> island_lost_{false};
  std::atomic<bool> hangs_{false};  // the engine's thread, and the controller has been told

  bool said_slow_ = false;  // Run's thread: that the controller has not answered

  std::atomic<int> exit_code_{-1};
  int stop_fd_ = -1;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENGINE_H_
