// Engine: a worker's process. Starts the parts (parts.h), joins the cluster, and ends everything in order.
//
// The messages of the controller are handled in order, on one thread that enqueues computations on this host's devices
// without waiting for their data. It never sleeps in the plugin. When a device is full, the run at hand and what comes
// behind it wait (DeviceRoom, Parking) while what must not wait is heard: lost hosts, aborted runs, the end. It ends
// what fills the device.
//
// Ownership: owns the context with the plugin's client and the object store, its sockets and threads, and the parts.
// Threads:   "pw-start" loads the plugin and joins, then ends. "pw-engine" (a Reactor) handles control messages, and
//            the parts are its own; "pw-compile" compiles; "pw-data" (DataPlane) moves bulk bytes and owns Incoming;
//            "pw-files" waits for disks. Callbacks of the plugin run on its threads and only post results. Run() waits
//            for signals on the caller's thread.
// Locks:     none of its own.
#ifndef PTPATHWAYS_WORKER_ENGINE_H_
#define PTPATHWAYS_WORKER_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "csrc/base/status.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/transport/control_line.h"
#include "csrc/transport/reactor.h"
#include "csrc/worker/engine_options.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/island_link.h"
#include "csrc/worker/parts.h"
#include "csrc/worker/start_devices.h"

namespace pathways::worker {

class Engine : private transport::ControlLine::Handler, private Outbox, private Stopper {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;

  // Joins the cluster and serves until told to stop; the process's exit code. Blocks the calling thread, which must be
  // the process's main thread with no other thread started: it takes SIGTERM and SIGINT over.
  int Run();

 private:
  // The descriptor by which signals come, or -1.
  int WatchSignals();
  Status Connect();
  // What takes long, on a thread of its own, so that signals are heeded meanwhile.
  std::thread StartLater(std::shared_ptr<std::promise<void>> started);
  Status Start();
  Status StartData(const std::shared_ptr<Pinner>& pinner);
  void MakeParts(const StartedDevices& devices, const std::shared_ptr<Pinner>& pinner, FileRoot root);
  Status Join();
  // Until something calls Stop.
  void WaitForEnd(int signal_fd);
  void OnSignal(uint32_t signal);
  bool Orphaned() const;
  // While the controller has not answered HELLO: says so after a while, and gives up in time.
  void LookForAnswer();
  // Ends this process after a while, whatever its threads are at.
  void EndInAnyCase() const;
  void End();

  // ControlLine::Handler
  void OnMessage(transport::Frames& frames) override { parts_->dispatch.OnMessage(frames); }
  void OnLost(const Status& status) override;
  // Outbox
  Status Send(transport::Frames frames) override { return control_->Send(std::move(frames)); }
  bool ending() const override { return exit_code_ >= 0; }
  // Stopper
  void Stop(int exit_code, const std::string& reason) override;

  const EngineOptions options_;
  HostContext context_;
  std::shared_ptr<IslandLink> island_link_;  // null: this host's plugin has a client of its own
  std::unique_ptr<transport::ControlLine> control_;
  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<dataplane::DataPlane> data_;
  std::unique_ptr<transport::Reactor> reactor_;
  std::unique_ptr<Parts> parts_;

  std::atomic<int64_t> asked_ms_{0};  // when HELLO was sent
  std::atomic<bool> island_lost_{false};
  bool said_slow_ = false;  // Run's thread: that the controller has not answered
  std::atomic<int> exit_code_{-1};
  int stop_fd_ = -1;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENGINE_H_
