#include "csrc/worker/engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <ctime>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/collective/segment.h"
#include "csrc/transport/endpoint.h"
#include "csrc/transport/shm.h"
#include "csrc/worker/device_pinner.h"

namespace pathways::worker {
namespace {

// Sent by the kernel when the thread that started this process ends.
constexpr int kParentDied = SIGUSR2;
// For a start that was interrupted to return.
constexpr std::chrono::seconds kStartGrace{5};
// For what is being written or read when this host's worker is told to stop.
constexpr std::chrono::seconds kFilesGrace{20};
// After this a worker that nobody can end any more ends itself, whatever its threads are at: a compiler's, a disk's, or
// the plugin's with a computation of minutes.
constexpr std::chrono::seconds kOrphanGrace{8};
// The same of one that was told to stop.
constexpr std::chrono::seconds kStopGrace = kFilesGrace + std::chrono::seconds(10);
// After this the user hears that the controller has not answered.
constexpr std::chrono::milliseconds kSaySlow{2000};

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), context_(options_.name, options_.platform, *this) {}

Engine::~Engine() {
  if (stop_fd_ >= 0) close(stop_fd_);
}

int Engine::Run() {
  const int signal_fd = WatchSignals();
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd < 0 || stop_fd_ < 0) {
    logging::Error("worker", "cannot watch for signals");
    return kExitFailed;
  }
  if (options_.parent_pid > 0) prctl(PR_SET_PDEATHSIG, kParentDied);

  // Shared: a start that hangs outlives this call.
  const auto started = std::make_shared<std::promise<void>>();
  std::thread start;
  if (Status status = Connect(); status.ok()) {
    start = StartLater(started);
  } else {
    Stop(kExitFailed, status.ToString());
  }
  WaitForEnd(signal_fd);
  context_.SetServing(false);
  EndInAnyCase();
  if (island_link_) island_link_->Cancel(Cancelled("this host's worker ends"));
  // A plugin that waits for hosts which are gone keeps its threads for ever, perhaps the engine's too: whoever called
  // ends the process.
  const bool stuck = start.joinable() && started->get_future().wait_for(kStartGrace) != std::future_status::ready;
  if (stuck || island_lost_ || (parts_ && parts_->membership.hangs())) {
    if (start.joinable()) start.detach();
    return exit_code_;
  }
  if (start.joinable()) start.join();
  End();
  close(signal_fd);
  return exit_code_;
}

int Engine::WatchSignals() {
  // Threads started from here on inherit the blocked mask, so signals reach only WaitForEnd's poll.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kParentDied);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

std::thread Engine::StartLater(std::shared_ptr<std::promise<void>> started) {
  return std::thread([this, started = std::move(started)] {
    pthread_setname_np(pthread_self(), "pw-start");
    if (Status done = Start(); !done.ok()) Stop(kExitFailed, done.ToString());
    started->set_value();
  });
}

void Engine::WaitForEnd(int signal_fd) {
  while (exit_code_.load() < 0) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    poll(fds, 2, 250);
    signalfd_siginfo info;
    if (fds[0].revents && read(signal_fd, &info, sizeof info) == sizeof info) OnSignal(info.ssi_signo);
    if (Orphaned()) Stop(kExitOrphaned, "the process that started this worker is gone");
    LookForAnswer();
  }
}

void Engine::OnSignal(uint32_t signal) {
  // A terminal's Ctrl-C goes to the whole foreground group; the client decides when its workers end.
  if (signal == SIGINT && options_.parent_pid > 0) return;
  // Of a dying process the thread that started us may go first, so the parent's id does not tell yet.
  if (signal == static_cast<uint32_t>(kParentDied)) {
    return Stop(kExitOrphaned, "the process that started this worker is gone");
  }
  context_.Send(wire::Goodbye{"it was told to stop (signal " + std::to_string(signal) + ")"});
  Stop(kExitOk, "");
}

void Engine::EndInAnyCase() const {
  std::thread([cluster = context_.cluster(), code = exit_code_.load()] {
    const bool orphaned = code == kExitOrphaned;
    std::this_thread::sleep_for(orphaned ? kOrphanGrace : kStopGrace);
    if (orphaned && !cluster.empty()) (void)transport::CleanUp(cluster);
    _exit(code);
  }).detach();
}

// In this order: no new work, no compile under way, no bytes moving, then buffers and the plugin.
void Engine::End() {
  if (reactor_) reactor_->Stop();
  if (parts_) parts_->pipelines.CloseAll();
  if (control_) control_->Close();
  if (parts_) {
    parts_->gangs.Stop(Cancelled("the worker stops"));
    parts_->functions.StopCompiling();
    if (!parts_->files.Stop(kFilesGrace)) context_.Log("a disk does not answer; its file is left as it is");
  }
  if (data_) data_->Stop();
  const std::string& cluster = context_.cluster();
  // The plugin's threads, which may still run, keep what they have mapped.
  if (parts_ && parts_->gangs.serves()) {
    (void)transport::CleanUpOwner(cluster, collective::SegmentOwner(context_.number()));
  }
  // A cluster ends with its controller, and whoever would have removed its shared memory may be gone with it. Errors
  // leave files behind, which the next cluster on this machine removes.
  if (exit_code_ == kExitOrphaned && !cluster.empty()) (void)transport::CleanUp(cluster);
}

bool Engine::Orphaned() const {
  return options_.parent_pid > 0 && getppid() != static_cast<pid_t>(options_.parent_pid);
}

void Engine::LookForAnswer() {
  const int64_t asked = asked_ms_;
  if (context_.serving() || asked == 0) return;
  const int64_t waited = NowMs() - asked;
  const int64_t limit = options_.connect_timeout.count();
  if (waited > limit) {
    Stop(kExitFailed, "expected an answer from the controller at " + options_.controller + " within " +
                          std::to_string(limit / 1000) +
                          " s, got none; check the address and that the controller runs");
  } else if (waited > kSaySlow.count() && !said_slow_) {
    said_slow_ = true;
    const time_t until = time(nullptr) + (limit - waited) / 1000;
    tm local{};
    char clock[16] = {};
    if (localtime_r(&until, &local) != nullptr) (void)strftime(clock, sizeof clock, "%H:%M:%S", &local);
    context_.Log("no controller has answered at " + options_.controller + " for " + std::to_string(waited / 1000) +
                 " s; waiting for one until " + clock + " (" + std::to_string(limit / 1000) + " s in all)");
  }
}

// The plugin takes longest to load, so whatever can fail fast comes first.
Status Engine::Connect() {
  const transport::CurveOptions curve = options_.keys.Curve(transport::Role::kController);
  PW_ASSIGN_OR_RETURN(control_, transport::ControlLine::Open(options_.controller, curve));
  if (options_.island_hosts > 0) {
    PW_ASSIGN_OR_RETURN(island_link_,
                        IslandLink::Start(transport::ControlLine::SocketOptionsFor(curve), options_.controller));
  }
  return OkStatus();
}

Status Engine::Start() {
  PW_ASSIGN_OR_RETURN(FileRoot root, FileRoot::Open(options_.root));
  PW_ASSIGN_OR_RETURN(const StartedDevices devices,
                      StartDevices(options_, context_, island_link_, [this](const Status& status) {
                        island_lost_ = true;
                        Stop(kExitFailed, std::string(status.message()));
                      }));
  context_.SetDevices(devices.client, devices.limits);
  context_.SetEnqueueAhead(devices.enqueue_ahead);
  incoming_ = std::make_unique<Incoming>();
  PW_ASSIGN_OR_RETURN(reactor_, transport::Reactor::Start({.name = "pw-engine"}));
  context_.SetThread(reactor_.get());
  const std::shared_ptr<Pinner> pinner = PinnerOf(devices.client);
  PW_RETURN_IF_ERROR(StartData(pinner));
  MakeParts(devices, pinner, std::move(root));
  PW_RETURN_IF_ERROR(control_->Attach(reactor_.get(), this));
  return Join();
}

void Engine::MakeParts(const StartedDevices& devices, const std::shared_ptr<Pinner>& pinner, FileRoot root) {
  const bool has_kernels = context_.is_cpu() && options_.kernels != "off";
  Parts::Options options;
  options.compiler =
      std::make_unique<Compiler>(devices.client, options_.scratch_dir, OpenDiskCache(options_, *devices.client),
                                 has_kernels ? std::optional(options_.kernels) : std::nullopt, options_.max_mappings);
  options.one_client = island_link_ != nullptr;
  options.pinner = pinner;
  options.root = std::move(root);
  options.pipelines = {options_.python, options_.pipeline_script, options_.keys.insecure()};
  Stopper& stopper = *this;
  parts_ = std::make_unique<Parts>(context_, *incoming_, *data_, *control_, stopper, std::move(options));
}

Status Engine::StartData(const std::shared_ptr<Pinner>& pinner) {
  dataplane::DataPlaneOptions data_options;
  data_options.machine = transport::MachineToken();
  data_options.bind_endpoint = options_.data_endpoint;
  data_options.curve = options_.keys.Curve(transport::Role::kWorker);
  data_options.transfer_timeout = options_.transfer_timeout;
  data_options.pinner = pinner;
  incoming_->OnSendFailed([this](const std::string& peer, uint64_t key, const Status& status) {
    reactor_->Post([this, peer, key, status] { parts_->buffers.TellBySender(peer, key, status); });
  });
  PW_ASSIGN_OR_RETURN(data_, dataplane::DataPlane::Start(data_options, incoming_.get()));
  incoming_->Attach(data_.get());
  incoming_->OnFailure([this](const Status& status) {
    reactor_->Post([this, status] { parts_->causes.Remember(std::string(status.message()), status); });
  });
  return OkStatus();
}

Status Engine::Join() {
  wire::Hello hello = HelloOf(options_, context_);
  hello.data_endpoint = transport::WithHost(data_->endpoint(), options_.advertise);
  asked_ms_ = NowMs();
  return control_->Join(std::move(hello));
}

void Engine::Stop(int exit_code, const std::string& reason) {
  int expected = -1;
  if (!exit_code_.compare_exchange_strong(expected, exit_code)) return;
  if (!reason.empty()) context_.Log(reason);
  // Else those who depend on this host would have to see that its connection is not made again.
  if (context_.serving() && exit_code == kExitFailed) context_.Send(wire::Goodbye{reason});
  const uint64_t one = 1;
  // Only fails when the counter is full, and then the poller is awake anyway.
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof one);
}

void Engine::OnLost(const Status& status) {
  // Whoever refused this host is there.
  Stop(context_.serving() ? kExitOrphaned : kExitRefused, std::string(status.message()));
}

}  // namespace pathways::worker
