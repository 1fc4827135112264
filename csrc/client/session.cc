// Session: the public operations. What arrives is handled in session_io.cc.
#include "csrc/client/session.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "csrc/client/session_impl.h"
#include "csrc/pjrt/collective_check.h"

namespace pathways::client {

using Clock = std::chrono::steady_clock;

namespace {

// Leaked: the PJRT plugin may be asked during interpreter shutdown.
std::mutex& CurrentMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::shared_ptr<Session>& CurrentSlot() {
  static auto* slot = new std::shared_ptr<Session>;
  return *slot;
}

}  // namespace

LogicalBuffer::LogicalBuffer(std::shared_ptr<Session> session, uint64_t id, std::vector<uint32_t> devices,
                             TensorType shard_type, std::shared_ptr<Event> ready)
    : session_(std::move(session)),
      id_(id),
      devices_(std::move(devices)),
      shard_type_(std::move(shard_type)),
      ready_(std::move(ready)) {}

Status LogicalBuffer::CheckHeld() const {
  if (!given_up()) return OkStatus();
  return Status(Code::kOutOfRange, "a value " + shard_type_.ToString() +
                                       " was given up (donated) to an earlier run: use what that run gave, or pass a "
                                       "value that still exists");
}

LogicalBuffer::~LogicalBuffer() { session_->FreeBuffer(*this); }

Function::Function(std::shared_ptr<Session> session, uint64_t id, FunctionSpec spec)
    : session_(std::move(session)),
      id_(id),
      spec_(std::move(spec)),
      description_(std::make_shared<const std::string>("function '" + spec_.name + "'" +
                                                       (spec_.source.empty() ? "" : " (" + spec_.source + ")"))) {}

Function::~Function() { session_->UnregisterFunction(id_); }

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() { Close("the client dropped its session"); }

Result<std::shared_ptr<Session>> Session::Connect(const SessionOptions& options,
                                                  const std::function<Status()>& still_wanted) {
  // A callback may drop the last reference, for example with a value that a fetch kept.
  const auto end = [](Session* session) {
    if (!InCallback::on_this_thread()) {
      delete session;
    } else {
      std::thread([session] { delete session; }).detach();
    }
  };
  std::shared_ptr<Session> session(new Session(std::make_unique<Impl>(options)), end);
  Status status = session->impl_->Open(still_wanted);
  if (!status.ok()) {
    session->Close("could not connect");
    return status;
  }
  return session;
}

const std::string& Session::cluster() const { return impl_->cluster; }
uint32_t Session::client_index() const { return impl_->client_index; }
bool Session::closed() const { return impl_->closed; }

std::vector<wire::HostDescription> Session::hosts() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->hosts;
}

uint32_t Session::device_count() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<uint32_t>(impl_->device_to_host.size());
}

Result<uint32_t> Session::Impl::HostOf(uint32_t device) const {
  std::lock_guard lock(mutex);
  if (closed) return FailedPrecondition(LeftText());
  if (!controller_lost.ok()) return controller_lost;
  if (device >= device_to_host.size()) {
    return InvalidArgument("expected a device below " + std::to_string(device_to_host.size()) + ", got " +
                           std::to_string(device));
  }
  const uint32_t host = device_to_host[device];
  if (!hosts[host].alive) return Unavailable(lost_reasons[host]);
  return host;
}

std::string Session::Impl::LeftText() const {
  return "it belongs to cluster '" + cluster +
         "', which this process has left; what was made there is gone, so make it anew after ptpathways.init()";
}

std::string Session::Impl::HostName(uint32_t host) const {
  std::lock_guard lock(mutex);
  return hosts[host].name;
}

// --- functions

Status Session::Impl::RegisterOn(Function& function, uint64_t id, const FunctionSpec& spec,
                                 std::vector<uint32_t> devices, std::vector<uint32_t>& registered) {
  std::vector<uint32_t> fresh;
  for (uint32_t device : devices) {
    PW_ASSIGN_OR_RETURN(uint32_t host, HostOf(device));
    if (std::find(registered.begin(), registered.end(), host) != registered.end()) continue;
    registered.push_back(host);
    fresh.push_back(host);
  }
  if (fresh.empty()) return OkStatus();
  {
    std::lock_guard lock(mutex);
    PendingFunction& pending = functions[id];
    pending.compiled = function.compiled();
    pending.what = function.description_;
    pending.waiting_for.insert(fresh.begin(), fresh.end());
  }
  wire::Register request;
  request.function = id;
  request.name = spec.name;
  request.format = spec.format;
  request.source = spec.source;
  request.replicas = spec.replicas;
  request.partitions = spec.partitions;
  request.one_device = spec.one_device;
  request.want_reply = 1;
  request.want_sharding = spec.wants_sharding;
  request.devices = std::move(devices);
  return Send(request,
              {std::make_shared<const std::string>(spec.module), std::make_shared<const std::string>(spec.options)});
}

Result<std::shared_ptr<Function>> Session::Register(FunctionSpec spec) {
  // A worker looks again: it also reads the collectives of MLIR.
  const Status fits = spec.format == "hlo"    ? pjrt::CheckCollectives(spec.module, spec.replicas, spec.partitions)
                      : spec.format == "mlir" ? pjrt::CheckMlirCounts(spec.module, spec.replicas, spec.partitions)
                                              : OkStatus();
  PW_RETURN_IF_ERROR(fits.WithPrefix("function '" + spec.name + "'"));
  std::vector<uint32_t> devices = spec.devices;
  size_t live = 0;
  uint32_t first_live_device = 0;
  for (const wire::HostDescription& host : hosts()) {
    if (host.alive && live++ == 0) first_live_device = host.first_device;
  }
  // One-device functions go to the host of their first run, unless there is but one, or an answer is needed now.
  if (devices.empty() && (live == 1 || !spec.outputs_known)) devices = {first_live_device};
  const uint64_t id = impl_->MintIds();
  auto function = std::make_shared<Function>(shared_from_this(), id, std::move(spec));
  if (!devices.empty()) {
    std::lock_guard lock(function->mutex_);
    PW_RETURN_IF_ERROR(impl_->RegisterOn(*function, id, function->spec_, devices, function->hosts_));
  }
  if (!function->spec_.outputs_known) {
    // How results lie is asked on PyTorch/XLA's own threads, while the loop goes on.
    PW_RETURN_IF_ERROR(WaitForCompile(function->compiled_, *function->description_, !function->spec_.wants_sharding));
    std::lock_guard lock(impl_->mutex);
    function->spec_.outputs = impl_->functions[id].outputs;
    function->spec_.output_sharding = impl_->functions[id].output_sharding;
    function->spec_.outputs_known = true;
  }
  return function;
}

uint32_t Session::TakeCodeRoom() {
  std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->code_room, 100);
}

void Session::UnregisterFunction(uint64_t id) noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->functions.erase(id);
  if (!impl_->closed) impl_->unregistered.push_back(id);
}

// --- buffers

Status Session::Impl::Upload(uint64_t id, uint32_t host, std::shared_ptr<HostMemory> bytes) {
  const uint64_t size = bytes->size();
  {
    std::unique_lock lock(mutex);
    if (hosts[host].data_endpoint.empty()) {  // simulated: it keeps types and times, no values
      uploaded += size;
      return OkStatus();
    }
    WaitForRoom(lock, "earlier uploads to be taken by their hosts", [&] {
      return upload_bytes_pending == 0 || upload_bytes_pending + size <= kMaxUploadBytesPending || closed ||
             !controller_lost.ok() || !hosts[host].alive;
    });
    upload_bytes_pending += size;
  }
  uploaded += size;
  data.load()->Send(dataplane::DataPlane::PeerOfHost(HostName(host)), id, {bytes->data(), size},
                    [this, bytes, size](const Status&) {
                      const InCallback in_callback;
                      {
                        std::lock_guard lock(mutex);
                        upload_bytes_pending -= size;
                      }
                      changed.notify_all();
                    });
  return OkStatus();
}

Result<Shard> Session::Put(uint32_t device, const TensorType& type, const void* bytes) {
  PW_RETURN_IF_ERROR(type.Validate());
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(device));
  const size_t size = static_cast<size_t>(type.ByteSize());
  wire::Put put;
  put.buffer = impl_->MintIds();
  put.key = put.buffer;
  put.device = device;
  put.type = type;
  if (size <= wire::kMaxInlineBytes) put.inline_data.assign(static_cast<const char*>(bytes), size);
  Shard shard{
      std::make_shared<LogicalBuffer>(shared_from_this(), put.buffer, std::vector<uint32_t>{device}, type, nullptr), 0};
  impl_->FlushFrees();  // what was dropped before makes room for this
  PW_RETURN_IF_ERROR(impl_->Send(put));
  if (size > wire::kMaxInlineBytes) {
    PW_RETURN_IF_ERROR(impl_->Upload(put.buffer, host, impl_->upload_memory->Copy(bytes, size)));
  } else {
    impl_->uploaded += size;
  }
  return shard;
}

Result<Shard> Session::Declare(uint32_t device, const TensorType& type) {
  PW_RETURN_IF_ERROR(type.Validate());
  PW_RETURN_IF_ERROR(impl_->HostOf(device).status());
  wire::Put put;
  put.buffer = impl_->MintIds();
  put.key = put.buffer;
  put.device = device;
  put.type = type;
  if (type.ByteSize() > 0) {
    std::lock_guard lock(impl_->mutex);
    impl_->declared[put.buffer].bytes =
        std::make_shared<HostMemory>(HostMemory::Zeroed(static_cast<size_t>(type.ByteSize())));
  }
  Shard shard{
      std::make_shared<LogicalBuffer>(shared_from_this(), put.buffer, std::vector<uint32_t>{device}, type, nullptr), 0};
  impl_->FlushFrees();  // what was dropped before makes room for this
  PW_RETURN_IF_ERROR(impl_->Send(put));
  return shard;
}

Status Session::Fill(const Shard& shard, uint64_t offset, const void* bytes, uint64_t size, bool last) {
  const uint64_t id = shard.buffer->id();
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(shard.device()));
  std::shared_ptr<HostMemory> complete;
  {
    std::lock_guard lock(impl_->mutex);
    auto it = impl_->declared.find(id);
    if (it == impl_->declared.end()) {
      if (size == 0 && shard.type().ByteSize() == 0) return OkStatus();
      return FailedPrecondition("expected a buffer that still waits for bytes, got one that is filled or failed");
    }
    Impl::Declared& entry = it->second;
    if (offset > entry.bytes->size() || size > entry.bytes->size() - offset) {
      return InvalidArgument("expected bytes within " + shard.type().ToString() + " (" +
                             std::to_string(entry.bytes->size()) + " bytes), got " + std::to_string(offset) + " to " +
                             std::to_string(offset + size));
    }
    std::memcpy(entry.bytes->data() + offset, bytes, size);
    if (last) {
      complete = std::move(entry.bytes);
      impl_->declared.erase(it);
    }
  }
  return complete ? impl_->Upload(id, host, std::move(complete)) : OkStatus();
}

Status Session::Fail(const Shard& shard, const Status& status) {
  const uint64_t id = shard.buffer->id();
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(shard.device()));
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->declared.erase(id) == 0) return FailedPrecondition("the buffer is filled or failed already");
    impl_->failed_buffers[id] = status;
  }
  impl_->data.load()->SendFailure(dataplane::DataPlane::PeerOfHost(impl_->HostName(host)), id, status);
  return OkStatus();
}

Result<Shard> Session::Copy(const Shard& source, uint32_t device) {
  PW_RETURN_IF_ERROR(impl_->HostOf(source.device()).status());
  PW_RETURN_IF_ERROR(impl_->HostOf(device).status());
  wire::Copy copy;
  copy.source = source.buffer->id();
  copy.source_shard = source.index;
  copy.source_device = source.device();
  copy.destination = impl_->MintIds();
  copy.destination_device = device;
  copy.type = source.type();
  Shard shard{std::make_shared<LogicalBuffer>(shared_from_this(), copy.destination, std::vector<uint32_t>{device},
                                              source.type(), nullptr),
              0};
  impl_->FlushFrees();
  PW_RETURN_IF_ERROR(impl_->Send(copy));
  impl_->copies += 1;
  return shard;
}

std::shared_ptr<Event> Session::Fetch(const Shard& shard, void* destination, uint64_t size, uint64_t* request) {
  if (request != nullptr) *request = 0;
  if (destination != nullptr && size != static_cast<uint64_t>(shard.type().ByteSize())) {
    return Event::Done(InvalidArgument("expected room for " + shard.type().ToString() + " (" +
                                       std::to_string(shard.type().ByteSize()) + " bytes), got " +
                                       std::to_string(size)));
  }
  if (Status held = shard.buffer->CheckHeld(); !held.ok()) return Event::Done(std::move(held));
  // A run that failed explains best why its result cannot be read: its error names function and line.
  const std::shared_ptr<Event>& run = shard.buffer->ready();
  std::optional<Status> outcome = run ? run->TryGet() : std::nullopt;
  if (outcome && !outcome->ok()) return Event::Done(*outcome);
  Result<uint32_t> host = impl_->HostOf(shard.device());
  if (!host.ok()) return Event::Done(host.status());
  wire::Fetch fetch;
  fetch.request = impl_->MintIds();
  fetch.buffer = shard.buffer->id();
  fetch.shard = shard.index;
  fetch.device = shard.device();
  fetch.metadata_only = destination == nullptr;
  auto event = Event::Make();
  {
    std::lock_guard lock(impl_->mutex);
    auto failed = impl_->failed_buffers.find(fetch.buffer);
    if (failed != impl_->failed_buffers.end()) return Event::Done(failed->second);
    impl_->fetches.Begin(fetch.request, {event, static_cast<char*>(destination), size, 0, *host});
  }
  if (request != nullptr) *request = fetch.request;
  // The buffer must not be freed before it has been read.
  event->OnReady([keep = shard.buffer](const Status&) {});
  Status status = impl_->Send(fetch);
  // The host may have been lost between the check and the entry; then nobody else would end this fetch.
  if (status.ok()) status = impl_->HostOf(shard.device()).status();
  if (!status.ok()) GiveUpFetch(fetch.request, status);
  if (!run || outcome) return event;
  auto explained = Event::Make();
  event->OnReady([explained, run](const Status& fetched) {
    std::optional<Status> cause = fetched.ok() ? std::nullopt : run->TryGet();
    explained->Set(cause && !cause->ok() ? *cause : fetched);
  });
  return explained;
}

void Session::GiveUpFetch(uint64_t request, const Status& status) {
  std::optional<PendingFetch> given_up;
  {
    std::unique_lock lock(impl_->mutex);
    // One piece at most is being copied.
    while (impl_->fetches.IsBeingWritten(request)) impl_->changed.wait_for(lock, kInterruptSlice);
    given_up = impl_->fetches.Take(request, status);
  }
  if (given_up) given_up->done->Set(status);
}

std::shared_ptr<Event> Session::Ready(const Shard& shard) {
  if (shard.buffer->ready()) return shard.buffer->ready();
  return Fetch(shard, nullptr, 0);
}

void Session::FreeBuffer(const LogicalBuffer& buffer) noexcept {
  bool flush = false;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->closed) return;
    impl_->failed_buffers.erase(buffer.id());
    impl_->declared.erase(buffer.id());
    impl_->free_bytes += static_cast<uint64_t>(buffer.shard_type().ByteSize()) * buffer.devices().size();
    uint32_t previous = UINT32_MAX;
    for (uint32_t device : buffer.devices()) {
      const uint32_t host = impl_->device_to_host[device];
      if (host == previous) continue;
      previous = host;
      if (!impl_->hosts[host].alive) continue;
      std::vector<uint64_t>& batch = impl_->frees[host];
      batch.push_back(buffer.id());
      flush = flush || batch.size() >= kFreeBatch;
    }
  }
  if (flush) impl_->FlushFrees();
}

void Session::Impl::FlushLargeFrees() {
  {
    std::lock_guard lock(mutex);
    if (free_bytes < kFreeBytesKept) return;
  }
  FlushFrees();
}

void Session::Impl::FlushFrees() {
  std::map<uint32_t, std::vector<uint64_t>> batch;
  wire::Unregister gone;
  {
    std::lock_guard lock(mutex);
    if (closed) return;
    batch.swap(frees);
    free_bytes = 0;
    gone.functions.swap(unregistered);
    gone.programs.swap(programs_gone);
  }
  for (auto& [host, ids] : batch) (void)Send(wire::Free{host, std::move(ids)});
  if (!gone.functions.empty() || !gone.programs.empty()) (void)Send(gone);
}

// --- runs

Status Session::EnsureRegistered(Function& function, uint32_t device) {
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(device));
  std::lock_guard lock(function.mutex_);
  if (std::find(function.hosts_.begin(), function.hosts_.end(), host) != function.hosts_.end()) return OkStatus();
  return impl_->RegisterOn(function, function.id(), function.spec(), {device}, function.hosts_);
}

void Session::Impl::EnterRun(uint64_t run, PendingRun pending) {
  std::unique_lock lock(mutex);
  WaitForRoom(lock, kRunsAhead, [&] { return runs.size() < options.window_runs || closed || !controller_lost.ok(); });
  runs[run] = std::move(pending);
}

void Session::Impl::LeaveRun(uint64_t run) {
  {
    std::lock_guard lock(mutex);
    runs.erase(run);
  }
  changed.notify_all();
}

Result<RunResult> Session::Run(const std::shared_ptr<Function>& function, const RunArguments& arguments) {
  const FunctionSpec& spec = function->spec();
  const size_t shards = arguments.devices.size();
  if (shards == 0 || (arguments.arguments.size() != shards && !arguments.arguments.empty())) {
    return InvalidArgument("expected one row of arguments per device, got " +
                           std::to_string(arguments.arguments.size()) + " for " + std::to_string(shards) + " devices");
  }
  PW_ASSIGN_OR_RETURN(uint32_t host, impl_->HostOf(arguments.devices[0]));
  PW_RETURN_IF_ERROR(EnsureRegistered(*function, arguments.devices[0]));
  wire::Run run;
  run.run = impl_->MintIds();
  run.function = function->id();
  run.output_count = static_cast<uint32_t>(spec.outputs.size());
  run.first_output = impl_->MintIds(std::max<uint32_t>(run.output_count, 1));
  run.devices = arguments.devices;
  run.donated = arguments.donated;
  for (const std::shared_ptr<LogicalBuffer>& buffer : arguments.whole) run.arguments.push_back(buffer->id());
  const size_t positions = arguments.arguments.empty() ? 0 : arguments.arguments[0].size();
  run.arguments.reserve(run.arguments.size() + positions);
  for (size_t position = 0; position < positions; ++position) {
    const Shard& first = arguments.arguments[0][position];
    bool uniform = first.index == 0 && first.buffer->devices().size() == shards;
    for (size_t shard = 1; shard < shards && uniform; ++shard) {
      const Shard& other = arguments.arguments[shard][position];
      uniform = other.buffer == first.buffer && other.index == shard;
    }
    if (uniform) {
      run.arguments.push_back(first.buffer->id());
      continue;
    }
    run.arguments.push_back(wire::kAssembledBit | (run.assembled.size() / (2 * shards)));
    for (size_t shard = 0; shard < shards; ++shard) {
      run.assembled.push_back(arguments.arguments[shard][position].buffer->id());
      run.assembled.push_back(arguments.arguments[shard][position].index);
    }
  }
  RunResult result;
  result.done = Event::Make();
  Impl::PendingRun pending{result.done, host, function->description_};
  if (!spec.one_device && !spec.devices.empty()) {
    std::lock_guard lock(function->mutex_);
    if (function->hosts_.size() > 1) {
      pending.hosts = std::make_shared<const std::vector<uint32_t>>(function->hosts_);
    }
  }
  impl_->EnterRun(run.run, std::move(pending));
  result.outputs.reserve(spec.outputs.size());
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    result.outputs.push_back(std::make_shared<LogicalBuffer>(shared_from_this(), run.first_output + k,
                                                             arguments.devices, spec.outputs[k], result.done));
  }
  impl_->run_count += 1;
  impl_->FlushLargeFrees();
  Status status = impl_->Send(run);
  if (status.ok()) status = impl_->HostOf(arguments.devices[0]).status();
  if (!status.ok()) {
    impl_->LeaveRun(run.run);
    result.done->Set(status);
    return status;
  }
  return result;
}

void Session::Close(const std::string& reason) {
  if (impl_->closed.exchange(true)) return;
  impl_->changed.notify_all();
  if (impl_->link) {
    (void)impl_->Send(wire::Goodbye{reason});  // nobody is left to tell
    impl_->link->Close();
  }
  if (impl_->data_owner) impl_->data_owner->Stop();
  const Status status = Cancelled("the session is closed: " + reason);
  std::vector<std::shared_ptr<Event>> events;
  std::vector<Fetches::Ended> fetches;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->fetches.Fail([](uint32_t) { return true; }, status, fetches);
    for (auto& [id, run] : impl_->runs) events.push_back(run.done);
    for (auto& [id, query] : impl_->queries) events.push_back(query.done);
    for (auto& [id, operation] : impl_->files) events.push_back(operation.done);
    for (auto& [id, function] : impl_->functions) events.push_back(function.compiled);
    for (auto& [id, program] : impl_->programs) events.push_back(program.ready);
    for (auto& [id, slice] : impl_->slices) events.push_back(slice.done);
    impl_->slices.clear();
    impl_->runs.clear();
    impl_->queries.clear();
    impl_->files.clear();
  }
  impl_->changed.notify_all();
  for (const auto& [event, why] : fetches) event->Set(why);
  for (const auto& event : events) event->Set(status);
  std::lock_guard lock(CurrentMutex());
  if (CurrentSlot().get() == this) CurrentSlot().reset();
}

void Session::SetCurrent(std::shared_ptr<Session> session) {
  std::lock_guard lock(CurrentMutex());
  CurrentSlot() = std::move(session);
}

std::shared_ptr<Session> Session::Current() {
  std::lock_guard lock(CurrentMutex());
  return CurrentSlot();
}

}  // namespace pathways::client
