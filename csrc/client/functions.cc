#include "csrc/client/functions.h"

#include <algorithm>
#include <utility>

#include "csrc/client/session.h"
#include "csrc/hlo/collective_check.h"

namespace pathways::client {

Function::Function(std::shared_ptr<Session> session, uint64_t id, FunctionSpec spec)
    : session_(std::move(session)),
      id_(id),
      spec_(std::move(spec)),
      description_(std::make_shared<const std::string>("function '" + spec_.name + "'" +
                                                       (spec_.source.empty() ? "" : " (" + spec_.source + ")"))) {}

Function::~Function() { session_->functions().Unregister(id_); }

std::shared_ptr<const std::vector<uint32_t>> Function::GangHosts() {
  if (spec_.one_device || spec_.devices.empty()) return nullptr;
  std::lock_guard lock(mutex_);
  return hosts_.size() > 1 ? std::make_shared<const std::vector<uint32_t>>(hosts_) : nullptr;
}

Result<std::shared_ptr<Function>> Functions::Register(FunctionSpec spec) {
  // A worker looks again: it also reads the collectives of MLIR.
  const Status fits = spec.format == "hlo"    ? hlo::CheckCollectives(spec.module, spec.replicas, spec.partitions)
                      : spec.format == "mlir" ? hlo::CheckMlirCounts(spec.module, spec.replicas, spec.partitions)
                                              : OkStatus();
  PW_RETURN_IF_ERROR(fits.WithPrefix("function '" + spec.name + "'"));
  std::vector<uint32_t> devices = spec.devices;
  if (devices.empty()) {
    // One-device functions go to the host of their first run, unless there is but one, or an answer is needed now.
    std::lock_guard lock(core_.mutex);
    size_t live = 0;
    uint32_t first_live_device = 0;
    for (const wire::HostDescription& host : core_.hosts.all()) {
      if (host.alive && live++ == 0) first_live_device = host.first_device;
    }
    if (live == 1 || !spec.outputs_known) devices = {first_live_device};
  }
  auto function = std::make_shared<Function>(core_.Keep(), core_.MintIds(), std::move(spec));
  if (!devices.empty()) {
    std::lock_guard lock(function->mutex_);
    PW_RETURN_IF_ERROR(RegisterOn(*function, std::move(devices)));
  }
  if (!function->spec_.outputs_known) {
    // How results lie is asked on PyTorch/XLA's own threads, while the loop goes on.
    PW_RETURN_IF_ERROR(
        waiting_.WaitForCompile(function->compiled_, *function->description_, !function->spec_.wants_sharding));
    std::lock_guard lock(core_.mutex);
    const Pending& pending = pending_[function->id_];
    function->spec_.outputs = pending.outputs;
    function->spec_.output_sharding = pending.output_sharding;
    function->spec_.outputs_known = true;
  }
  return function;
}

Result<uint32_t> Functions::EnsureRegistered(Function& function, uint32_t device) {
  PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(device));
  std::lock_guard lock(function.mutex_);
  if (std::find(function.hosts_.begin(), function.hosts_.end(), host) == function.hosts_.end()) {
    PW_RETURN_IF_ERROR(RegisterOn(function, {device}));
  }
  return host;
}

Status Functions::RegisterOn(Function& function, std::vector<uint32_t> devices) {
  std::vector<uint32_t> fresh;
  for (const uint32_t device : devices) {
    PW_ASSIGN_OR_RETURN(const uint32_t host, core_.HostOf(device));
    if (std::find(function.hosts_.begin(), function.hosts_.end(), host) != function.hosts_.end()) continue;
    function.hosts_.push_back(host);
    fresh.push_back(host);
  }
  if (fresh.empty()) return OkStatus();
  {
    std::lock_guard lock(core_.mutex);
    Preparation& compile = pending_[function.id_].compile;
    compile.done = function.compiled_;
    compile.what = function.description_;
    compile.waiting_for.insert(fresh.begin(), fresh.end());
  }
  const FunctionSpec& spec = function.spec_;
  wire::Register request;
  request.function = function.id_;
  request.name = spec.name;
  request.format = spec.format;
  request.source = spec.source;
  request.replicas = spec.replicas;
  request.partitions = spec.partitions;
  request.one_device = spec.one_device;
  request.want_sharding = spec.wants_sharding;
  request.devices = std::move(devices);
  return core_.Send(
      request, {std::make_shared<const std::string>(spec.module), std::make_shared<const std::string>(spec.options)});
}

uint32_t Functions::TakeCodeRoom() {
  std::lock_guard lock(core_.mutex);
  return std::exchange(code_room_, 100);
}

void Functions::Unregister(uint64_t id) noexcept {
  std::lock_guard lock(core_.mutex);
  pending_.erase(id);
  if (!core_.closed) core_.releases.UnregisterFunction(id);
}

void Functions::OnRegistered(const wire::Registered& answer) {
  std::shared_ptr<Event> event;
  Status status;
  {
    std::lock_guard lock(core_.mutex);
    code_room_ = std::min(code_room_, answer.code_room);
    const auto it = pending_.find(answer.function);
    if (it == pending_.end()) return;
    Pending& pending = it->second;
    pending.compile.Answer(answer.host, answer.status);
    if (pending.outputs.empty()) {
      pending.outputs = answer.outputs;
      pending.output_sharding = answer.output_sharding;
    }
    if (!pending.compile.waiting_for.empty()) return;
    event = pending.compile.done;
    status = pending.compile.first_error;
  }
  event->Set(status);
}

void Functions::Fail(const Loss& loss, Endings& ended) {
  for (auto& [id, pending] : pending_) pending.compile.Fail(loss, ended);
}

void Functions::List(std::vector<PendingItem>& out) const {
  for (const auto& [id, pending] : pending_) pending.compile.List("compile", out);
}

}  // namespace pathways::client
