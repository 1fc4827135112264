// Engine: life of a worker and its control messages. Functions, runs and buffers are in files of their own.
#include "csrc/worker/engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <future>
#include <thread>

#include "csrc/base/clock.h"
#include "csrc/collective/segment.h"
#include "csrc/pjrt/custom_calls.h"
#include "csrc/transport/endpoint.h"
#include "csrc/transport/shm.h"
#include "csrc/worker/enqueue_probe.h"
#include "csrc/worker/note.h"
#include "csrc/worker/staging.h"

namespace pathways::worker {

using transport::Frames;
using wire::Type;

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
// The locks of a process that ends are free a moment after its connections are closed.
constexpr std::chrono::seconds kLocksGrace{1};
// Other plugins than the CPU's may wait for other hosts on the thread that enqueues, as long as those take.
constexpr int kLeasesOfOtherPlugins = 10;
// After this the user hears that the controller has not answered.
constexpr std::chrono::milliseconds kSaySlow{2000};

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), context_(options_.name, options_.platform, *this) {}

Engine::~Engine() {
  if (stop_fd_ >= 0) close(stop_fd_);
}

int Engine::Run() {
  // Threads started from here on inherit the blocked mask, so signals reach only the poll below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kParentDied);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd < 0 || stop_fd_ < 0) {
    std::fprintf(stderr, "ptpathways worker: cannot watch for signals\n");
    return kExitFailed;
  }
  if (options_.parent_pid > 0) prctl(PR_SET_PDEATHSIG, kParentDied);

  // Shared: a start that hangs outlives this call.
  const auto started = std::make_shared<std::promise<void>>();
  std::thread start;
  if (Status status = Connect(); status.ok()) {
    start = std::thread([this, started] {
      pthread_setname_np(pthread_self(), "pw-start");
      if (Status done = Start(); !done.ok()) Stop(kExitFailed, done.ToString());
      started->set_value();
    });
  } else {
    Stop(kExitFailed, status.ToString());
  }
  while (exit_code_.load() < 0) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    poll(fds, 2, 250);
    if (fds[0].revents) {
      signalfd_siginfo info;
      if (read(signal_fd, &info, sizeof info) == sizeof info) {
        // A terminal's Ctrl-C goes to the whole foreground group; the client decides when its workers end.
        if (info.ssi_signo == SIGINT && options_.parent_pid > 0) continue;
        // Of a dying process the thread that started us may go first, so the parent's id does not tell yet.
        if (info.ssi_signo == static_cast<uint32_t>(kParentDied)) {
          Stop(kExitOrphaned, "the process that started this worker is gone");
          continue;
        }
        context_.Send(wire::Goodbye{"it was told to stop (signal " + std::to_string(info.ssi_signo) + ")"});
        Stop(kExitOk, "");
      }
    }
    if (Orphaned()) Stop(kExitOrphaned, "the process that started this worker is gone");
    LookForAnswer();
  }
  joined_ = false;
  std::thread([cluster = cluster_, code = exit_code_.load()] {
    const bool orphaned = code == kExitOrphaned;
    std::this_thread::sleep_for(orphaned ? kOrphanGrace : kStopGrace);
    if (orphaned && !cluster.empty()) (void)transport::CleanUp(cluster);
    _exit(code);
  }).detach();
  if (island_link_) island_link_->Cancel(Cancelled("this host's worker ends"));
  // A plugin that waits for hosts which are gone keeps its threads for ever, perhaps the engine's too: whoever called
  // ends the process.
  const bool stuck = start.joinable() && started->get_future().wait_for(kStartGrace) != std::future_status::ready;
  if (stuck || island_lost_ || hangs_) {
    if (start.joinable()) start.detach();
    return exit_code_;
  }
  if (start.joinable()) start.join();
  // In this order: no new work, no compile under way, no bytes moving, then buffers and the plugin.
  if (reactor_) reactor_->Stop();
  if (pipelines_) pipelines_->CloseAll();
  if (control_) control_->Close();
  if (gangs_) gangs_->Stop(Cancelled("the worker stops"));
  if (functions_) functions_->StopCompiling();
  if (files_ && !files_->Stop(kFilesGrace)) context_.Log("a disk does not answer; its file is left as it is");
  if (data_) data_->Stop();
  // The plugin's threads, which may still run, keep what they have mapped.
  if (gangs_ && gangs_->serves()) (void)transport::CleanUpOwner(cluster_, collective::SegmentOwner(context_.number()));
  // A cluster ends with its controller, and whoever would have removed its shared memory may be gone with it. Errors
  // leave files behind, which the next cluster on this machine removes.
  if (exit_code_ == kExitOrphaned && !cluster_.empty()) (void)transport::CleanUp(cluster_);
  close(signal_fd);
  return exit_code_;
}

bool Engine::Orphaned() const {
  return options_.parent_pid > 0 && getppid() != static_cast<pid_t>(options_.parent_pid);
}

void Engine::LookForAnswer() {
  const int64_t asked = asked_ms_;
  if (joined_ || asked == 0) return;
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
  PW_RETURN_IF_ERROR(StartDevices());
  incoming_ = std::make_unique<Incoming>();
  PW_ASSIGN_OR_RETURN(reactor_, transport::Reactor::Start({.name = "pw-engine"}));
  context_.SetThread(reactor_.get());
  PW_RETURN_IF_ERROR(StartData());
  completions_ = std::make_unique<Completions>(context_, root_causes_);
  gangs_ = std::make_unique<Gangs>(context_, cluster_view_, root_causes_, *completions_, *data_);
  const bool has_kernels = context_.is_cpu() && options_.kernels != "off";
  CompileListener& listener = *this;
  functions_ = std::make_unique<Functions>(
      context_, cluster_view_,
      std::make_unique<Compiler>(context_.client(), options_.scratch_dir, OpenDiskCache(),
                                 has_kernels ? std::optional(options_.kernels) : std::nullopt, options_.max_mappings),
      island_link_ != nullptr, listener);
  launcher_ =
      std::make_unique<Launcher>(context_, *gangs_, enqueue_waits_, [this] { reactor_->Post([this] { Resume(); }); });
  runs_ = std::make_unique<Runs>(context_, cluster_view_, *functions_, *launcher_, *completions_, *gangs_);
  buffers_ = std::make_unique<Buffers>(context_, cluster_view_, root_causes_, *incoming_, *data_);
  programs_ = std::make_unique<Programs>(context_, *functions_);
  plan_host_ =
      std::make_unique<PlanHost>(context_, cluster_view_, *buffers_, *incoming_, *launcher_, *completions_, *data_);
  program_runs_ = std::make_unique<ProgramRuns>(context_, *programs_, *plan_host_, *buffers_, *incoming_, *completions_,
                                                *gangs_, root_causes_, *data_);
  files_ = std::make_unique<Files>(context_, *incoming_, std::move(root));
  spills_ = std::make_unique<Spills>(context_, *data_);
  pipelines_ = std::make_unique<InputPipelines>(
      context_, *incoming_, InputPipelineOptions{options_.python, options_.pipeline_script, options_.keys.insecure()});
  PW_RETURN_IF_ERROR(control_->Attach(reactor_.get(), this));
  return Join();
}

Status Engine::StartDevices() {
  PW_ASSIGN_OR_RETURN(std::shared_ptr<pjrt::Api> api, pjrt::Api::Load(options_.plugin));
  pjrt::NamedValues create_options = options_.create_options;
  if (island_link_) PW_RETURN_IF_ERROR(JoinIsland(*api, &create_options));
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<pjrt::Client> client,
                      pjrt::Client::Create(api, create_options, island_link_));
  PW_RETURN_IF_ERROR(pjrt::RegisterCustomCalls(*api, options_.platform));
  if (client->devices().empty()) {
    return FailedPrecondition("expected plugin " + options_.plugin + " to offer at least one device, got none");
  }
  std::vector<int64_t> limits;
  for (size_t d = 0; d < client->devices().size(); ++d) {
    int64_t limit = options_.memory_limit_bytes;
    if (limit == 0) {
      auto stats = client->GetMemoryStats(static_cast<int>(d));
      if (stats && stats->limit_bytes) limit = *stats->limit_bytes;
    }
    // CPU devices take the host's memory. Without a limit, what cannot fit would end the process instead of the run.
    if (limit == 0 && context_.is_cpu()) {
      limit = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 10 * 9;
    }
    limits.push_back(limit);
  }
  context_.SetDevices(client, limits);
  if (client->platform_name() != "cpu") {
    const Result<bool> waits = EnqueueWaitsForArguments(client);
    enqueue_waits_ = !waits.ok() || *waits;
    if (enqueue_waits_) {
      context_.Log("computations are enqueued when their arguments have arrived, because the plugin " +
                   (waits.ok() ? "makes who enqueues one wait for them"
                               : "could not be asked whether it waits for them: " + waits.status().ToString()));
    }
  }
  return OkStatus();
}

Status Engine::JoinIsland(const pjrt::Api& api, pjrt::NamedValues* options) {
  wire::IslandJoin request;
  request.build = options_.build;
  request.name = options_.name;
  request.pid = static_cast<uint64_t>(getpid());
  request.island = options_.island;
  request.hosts = options_.island_hosts;
  request.platform = options_.platform;
  std::error_code ignored;  // a plugin found by name alone has no size here; its version remains
  request.plugin =
      "of " + std::to_string(std::filesystem::file_size(options_.plugin, ignored)) + " bytes with " + api.VersionText();
  request.timeout_ms = static_cast<uint64_t>(options_.island_timeout.count());
  PW_ASSIGN_OR_RETURN(const uint32_t node, island_link_->Join(request, [this](const Status& status) {
    island_lost_ = true;
    Stop(kExitFailed, std::string(status.message()));
  }));
  if (!options_.node_id_option.empty()) (*options)[options_.node_id_option] = static_cast<int64_t>(node);
  if (!options_.num_nodes_option.empty()) {
    (*options)[options_.num_nodes_option] = static_cast<int64_t>(options_.island_hosts);
  }
  return OkStatus();
}

std::optional<DiskCache> Engine::OpenDiskCache() const {
  if (options_.cache_dir.empty()) return std::nullopt;
  std::error_code ignored;  // a plugin found by name alone has no size here; its version remains
  const auto bytes = std::filesystem::file_size(options_.plugin, ignored);
  const char* const flags = std::getenv("XLA_FLAGS");
  std::string maker = options_.platform + '\n' + context_.client()->platform_version() + '\n' + options_.plugin + '\n' +
                      std::to_string(bytes) + '\n' + context_.client()->devices()[0].kind + '\n' + ProcessorText() +
                      '\n' + DriverText() + '\n' + (flags == nullptr ? "" : flags);
  Result<DiskCache> disk = DiskCache::Open(options_.cache_dir, std::move(maker));
  if (!disk.ok()) Note("compiled programs are not kept for the next start: " + disk.status().ToString());
  return disk.ok() ? std::optional<DiskCache>(*std::move(disk)) : std::nullopt;
}

Status Engine::StartData() {
  dataplane::DataPlaneOptions data_options;
  data_options.machine = transport::MachineToken();
  data_options.bind_endpoint = options_.data_endpoint;
  data_options.curve = options_.keys.Curve(transport::Role::kWorker);
  data_options.transfer_timeout = options_.transfer_timeout;
  incoming_->OnSendFailed([this](const std::string& peer, uint64_t key, const Status& status) {
    reactor_->Post([this, peer, key, status] { buffers_->TellBySender(peer, key, status); });
  });
  PW_ASSIGN_OR_RETURN(data_, dataplane::DataPlane::Start(data_options, incoming_.get()));
  incoming_->Attach(data_.get());
  incoming_->OnFailure([this](const Status& status) {
    reactor_->Post([this, status] { root_causes_.Remember(std::string(status.message()), status); });
  });
  return OkStatus();
}

Status Engine::Join() {
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = options_.build;
  hello.name = options_.name;
  hello.pid = static_cast<uint64_t>(getpid());
  hello.machine = transport::MachineToken();
  hello.platform = options_.platform;
  hello.platform_version = context_.client()->platform_version();
  hello.island = options_.island;
  for (const pjrt::DeviceInfo& device : context_.client()->devices()) {
    wire::DeviceDescription description;
    description.local_ordinal = static_cast<uint32_t>(hello.devices.size());
    description.kind = device.kind;
    description.plugin_id = device.id;
    description.memory_limit_bytes = context_.store().account().limit(hello.devices.size());
    hello.devices.push_back(std::move(description));
  }
  hello.staging_limit_bytes = StagingLimit(context_);
  hello.data_endpoint = transport::WithHost(data_->endpoint(), options_.advertise);
  asked_ms_ = NowMs();
  return control_->Join(std::move(hello));
}

void Engine::Stop(int exit_code, const std::string& reason) {
  int expected = -1;
  if (!exit_code_.compare_exchange_strong(expected, exit_code)) return;
  if (!reason.empty()) context_.Log(reason);
  // Else those who depend on this host would have to see that its connection is not made again.
  if (joined_ && exit_code == kExitFailed) context_.Send(wire::Goodbye{reason});
  const uint64_t one = 1;
  // Only fails when the counter is full, and then the poller is awake anyway.
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof one);
}

Status Engine::Handle(const wire::Head& head, Frames& frames) {
  switch (head.header.type) {
    case Type::kRun: {
      PW_ASSIGN_OR_RETURN(wire::Run run, wire::Decode<wire::Run>(head.body));
      if (runs_->MustWait(run)) {
        parking_.Park(std::move(frames));
        return OkStatus();
      }
      runs_->Start(run, head.header.sequence);
      return OkStatus();
    }
    case Type::kRunProgram: {
      PW_ASSIGN_OR_RETURN(wire::RunProgram run, wire::Decode<wire::RunProgram>(head.body));
      if (!program_runs_->Start(std::move(run), head.header.sequence)) parking_.Park();
      return OkStatus();
    }
    case Type::kRunInPlace: {
      PW_ASSIGN_OR_RETURN(wire::RunInPlace run, wire::Decode<wire::RunInPlace>(head.body));
      if (!program_runs_->StartInPlace(run, head.header.sequence)) parking_.Park();
      return OkStatus();
    }
    case Type::kRegisterPlan: {
      PW_ASSIGN_OR_RETURN(wire::RegisterPlan description, wire::Decode<wire::RegisterPlan>(head.body));
      return programs_->Register(std::move(description));
    }
    case Type::kPut: {
      PW_ASSIGN_OR_RETURN(wire::Put put, wire::Decode<wire::Put>(head.body));
      return buffers_->Put(put);
    }
    case Type::kFree: {
      PW_ASSIGN_OR_RETURN(wire::Free free, wire::Decode<wire::Free>(head.body));
      buffers_->Free(free);
      return OkStatus();
    }
    case Type::kFetch: {
      PW_ASSIGN_OR_RETURN(wire::Fetch fetch, wire::Decode<wire::Fetch>(head.body));
      buffers_->Fetch(fetch);
      return OkStatus();
    }
    case Type::kCopy: {
      PW_ASSIGN_OR_RETURN(wire::Copy copy, wire::Decode<wire::Copy>(head.body));
      buffers_->Copy(copy);
      return OkStatus();
    }
    case Type::kSpill: {
      PW_ASSIGN_OR_RETURN(wire::Spill spill, wire::Decode<wire::Spill>(head.body));
      spills_->Spill(spill);
      return OkStatus();
    }
    case Type::kRestore: {
      PW_ASSIGN_OR_RETURN(wire::Restore restore, wire::Decode<wire::Restore>(head.body));
      spills_->Restore(restore);
      return OkStatus();
    }
    case Type::kSave: {
      PW_ASSIGN_OR_RETURN(wire::Save save, wire::Decode<wire::Save>(head.body));
      files_->Save(std::move(save));
      return OkStatus();
    }
    case Type::kLoad: {
      PW_ASSIGN_OR_RETURN(wire::Load load, wire::Decode<wire::Load>(head.body));
      files_->Load(std::move(load));
      return OkStatus();
    }
    case Type::kExpect: {
      PW_ASSIGN_OR_RETURN(wire::Expect expect, wire::Decode<wire::Expect>(head.body));
      return buffers_->Expect(expect);
    }
    case Type::kRegister: {
      PW_ASSIGN_OR_RETURN(wire::Register request, wire::Decode<wire::Register>(head.body));
      return functions_->Register(std::move(request), frames);
    }
    case Type::kUnregister: {
      PW_ASSIGN_OR_RETURN(wire::Unregister request, wire::Decode<wire::Unregister>(head.body));
      functions_->Unregister(request.functions);
      programs_->Unregister(request.programs);
      return OkStatus();
    }
    case Type::kOpenPipeline: {
      PW_ASSIGN_OR_RETURN(const wire::OpenPipeline open, wire::Decode<wire::OpenPipeline>(head.body));
      pipelines_->Open(open, frames.size() == 2 ? &frames[1] : nullptr);
      return OkStatus();
    }
    case Type::kFeed: {
      PW_ASSIGN_OR_RETURN(wire::Feed feed, wire::Decode<wire::Feed>(head.body));
      pipelines_->Feed(std::move(feed));
      return OkStatus();
    }
    case Type::kClosePipeline: {
      PW_ASSIGN_OR_RETURN(wire::ClosePipeline close, wire::Decode<wire::ClosePipeline>(head.body));
      pipelines_->Close(close.pipeline);
      return OkStatus();
    }
    case Type::kQuery: {
      PW_ASSIGN_OR_RETURN(wire::Query query, wire::Decode<wire::Query>(head.body));
      Answer(query);
      return OkStatus();
    }
    case Type::kWelcome: {
      PW_ASSIGN_OR_RETURN(wire::Welcome welcome, wire::Decode<wire::Welcome>(head.body));
      cluster_ = welcome.cluster;
      data_->Join({cluster_, "", welcome.data_key, welcome.session});
      if (welcome.peer >= welcome.hosts.size()) return DataLoss("WELCOME does not describe this host");
      context_.Joined(welcome.peer, welcome.hosts[welcome.peer].first_device);
      gangs_->Start(cluster_);
      OnHosts(welcome.hosts, welcome.identities);
      watch_.emplace(welcome.lease_ms * (context_.is_cpu() ? 1 : kLeasesOfOtherPlugins));
      joined_ = true;
      data_->Every(std::chrono::milliseconds(welcome.heartbeat_interval_ms), [this] { OnTimer(); });
      return OkStatus();
    }
    case Type::kTopology: {
      PW_ASSIGN_OR_RETURN(wire::Topology topology, wire::Decode<wire::Topology>(head.body));
      OnHosts(topology.hosts, topology.identities);
      return OkStatus();
    }
    case Type::kHostLost: {
      PW_ASSIGN_OR_RETURN(wire::HostLost lost, wire::Decode<wire::HostLost>(head.body));
      OnHostLost(lost);
      return OkStatus();
    }
    case Type::kTransferFailed: {
      PW_ASSIGN_OR_RETURN(wire::TransferFailed failed, wire::Decode<wire::TransferFailed>(head.body));
      // The controller says in the sequence who told it: a host, plus one, or the client whose key it is.
      const uint64_t from = head.header.sequence;
      incoming_->FailTransfer(failed.key, from == 0 ? kFromClient : static_cast<uint32_t>(from - 1),
                              std::move(failed.status));
      return OkStatus();
    }
    case Type::kRotate: {
      PW_ASSIGN_OR_RETURN(wire::Rotate rotate, wire::Decode<wire::Rotate>(head.body));
      PW_ASSIGN_OR_RETURN(const auto keys, transport::KeysOfToken(rotate.token, transport::Role::kWorker));
      control_->Rotate(keys.Curve(transport::Role::kController));
      data_->Rotate(keys.Curve(transport::Role::kWorker));
      return OkStatus();
    }
    case Type::kAbort: {
      PW_ASSIGN_OR_RETURN(wire::Abort abort, wire::Decode<wire::Abort>(head.body));
      gangs_->Abort(abort);
      return OkStatus();
    }
    case Type::kOwnerGone: {
      PW_ASSIGN_OR_RETURN(wire::OwnerGone gone, wire::Decode<wire::OwnerGone>(head.body));
      OnOwnerGone(gone);
      return OkStatus();
    }
    case Type::kHeartbeat:
      return OkStatus();
    case Type::kReject: {
      PW_ASSIGN_OR_RETURN(wire::Reject reject, wire::Decode<wire::Reject>(head.body));
      Stop(kExitRefused, "the controller refused this worker: " + reject.status.ToString());
      return OkStatus();
    }
    case Type::kGoodbye:
      Stop(kExitOk, "");
      return OkStatus();
    default:
      return InvalidArgument("a worker does not take " + std::string(wire::TypeName(head.header.type)));
  }
}

void Engine::OnLost(const Status& status) {
  // Whoever refused this host is there.
  Stop(joined_ ? kExitOrphaned : kExitRefused, std::string(status.message()));
}

Status Engine::GoneText(uint32_t client) { return Cancelled("client " + std::to_string(client) + " is gone"); }

void Engine::OnHosts(const std::vector<wire::HostDescription>& hosts, const std::vector<wire::IdentityAt>& identities) {
  cluster_view_.Set(hosts);
  for (const wire::IdentityAt& at : identities) {
    if (at.host < hosts.size()) data_->SetIdentityAt(hosts[at.host].name, at.identity);
  }
  incoming_->SetHosts(cluster_view_.Names());
  gangs_->HostsChanged();
}

void Engine::OnHostLost(const wire::HostLost& lost) {
  const wire::HostDescription* const host = cluster_view_.Lose(lost.host);
  if (host == nullptr) return;
  const Status status = Unavailable(lost.reason);
  root_causes_.Remember(lost.reason, status);
  incoming_->FailFromHost(lost.host, status);
  gangs_->HostLost(lost.host, status);
  data_->PeerLost(dataplane::DataPlane::PeerOfHost(host->name), status);
  data_->PeerLost("w/" + host->name, status, host->session);
  // If it was killed on this machine, its shared memory is still there.
  if (host->machine == cluster_view_.Find(context_.number())->machine) {
    reactor_->AddTimer(kLocksGrace, {}, [] { (void)transport::CleanUpDead(); });
  }
}

void Engine::OnOwnerGone(const wire::OwnerGone& gone) {
  const uint32_t client = gone.client;
  const Status status = GoneText(client);
  const size_t removed = context_.store().RemoveClient(client);
  programs_->ForgetClient(client);
  functions_->ForgetClient(client);
  pipelines_->CloseOf(client);
  incoming_->FailOfClient(client, status, gone.session);
  data_->PeerLost(dataplane::DataPlane::PeerOfClient(client), status, gone.session);
  // A client that was killed leaves its shared memory behind. Another host of its machine may have removed it before.
  if (gone.session != 0) (void)transport::CleanUpOwner(cluster_, gone.session);
  if (options_.verbose)
    context_.Log("collected " + std::to_string(removed) + " buffers of client " + std::to_string(client));
}

// On the data thread, so that neither a long inline computation nor a compile silences this host.
void Engine::OnTimer() {
  if (!joined_) return;
  WatchEngine();
  control_->Beat(context_.live_buffers(), context_.live_bytes(), static_cast<uint64_t>(watch_->still_ms()));
  gangs_->ReportStalls();
}

void Engine::WatchEngine() {
  switch (watch_->Look(NowMs(), reactor_->CpuTime().count())) {
    case EngineWatch::Decision::kWait:
      return;
    case EngineWatch::Decision::kAsk:
      return reactor_->Post([this] { watch_->Turned(); });
    case EngineWatch::Decision::kHangs:
      const std::string reason = "its engine hangs: for " + std::to_string(watch_->still_ms()) +
                                 " ms its thread has neither taken a message nor computed; it waits inside the " +
                                 options_.platform + " plugin or a custom call";
      // The goodbye leaves while this process still runs: it ends at the next tick.
      if (hangs_.exchange(true)) return Stop(kExitFailed, reason);
      context_.Send(wire::Goodbye{reason});
  }
}

}  // namespace pathways::worker
