// Engine: gangs over several hosts. Their executions are held back by the gate until it is their turn on the device;
// the collectives in them are served by the communicator; and what fails here is told to the others, which would wait.
#include <algorithm>

#include "csrc/pjrt/collective_calls.h"
#include "csrc/worker/engine.h"

namespace pathways::worker {
namespace {

constexpr size_t kRememberedAborts = 256;  // runs that were aborted
constexpr std::chrono::milliseconds kStalledAfter{1000};

}  // namespace

Status Engine::StartGangs() {
  if (!context_.is_cpu()) return OkStatus();
  collective::CommunicatorOptions options;
  options.cluster = cluster_;
  options.host = context_.number();
  communicator_ = std::make_unique<collective::Communicator>(std::move(options), data_.get());
  GangTurns* const turns = this;
  gate_ = std::make_unique<GangGate>(context_.client(), turns);
  pjrt::SetCollectiveBackend(communicator_.get());
  return OkStatus();
}

Status Engine::LaunchSpanning(const Function& function, std::span<const std::span<pjrt::Buffer* const>> rows,
                              std::span<const int64_t> non_donatable, uint64_t run,
                              const collective::LaunchId& launch) {
  const std::vector<int>& devices = function.computation->devices();
  tickets_.clear();
  ticket_buffers_.clear();
  for (const int device : devices) {
    PW_ASSIGN_OR_RETURN(GangGate::Ticket ticket, gate_->Issue(device));
    tickets_.push_back(std::move(ticket));
  }
  for (GangGate::Ticket& ticket : tickets_) ticket_buffers_.push_back(ticket.buffer());
  PW_RETURN_IF_ERROR(function.computation->Launch(rows, 0, non_donatable, launch, ticket_buffers_, &outputs_));
  auto gang = std::make_shared<collective::Gang>();
  gang->run = run;
  gang->launch = launch;
  gang->what = Describe(function);
  gang->shards = function.places;
  for (size_t row = 0; row < devices.size(); ++row) {
    gate_->Enter(devices[row], std::move(tickets_[row]), gang, function.local[row], outputs_.done[row]);
  }
  return OkStatus();
}

void Engine::Begin(int device, const GangPtr& gang, uint32_t shard) { communicator_->Begin(device, gang, shard); }

void Engine::End(int device) { communicator_->End(device); }

void Engine::Failed(const GangPtr& gang, const Status& status) {
  reactor_->Post([this, gang, status] {
    RootCauses::Inputs inputs;
    for (const std::weak_ptr<Pending>& entry : running_) {
      const std::shared_ptr<Pending> pending = entry.lock();
      if (pending != nullptr && pending->run == gang->run) inputs = pending->inputs;
    }
    AbortElsewhere(gang->run, RootCause(status, gang->what, inputs));
  });
}

void Engine::AbortElsewhere(uint64_t run, const Status& status) {
  if (std::find(aborted_.begin(), aborted_.end(), run) != aborted_.end()) return;
  aborted_.push_back(run);
  if (aborted_.size() > kRememberedAborts) aborted_.pop_front();
  // Its other collectives have lost their meaning here, too.
  if (communicator_) communicator_->Abort(run, status);
  context_.Send(wire::Abort{run, status});
}

void Engine::OnAbort(const wire::Abort& abort) {
  if (std::find(aborted_.begin(), aborted_.end(), abort.run) != aborted_.end()) return;
  aborted_.push_back(abort.run);
  if (aborted_.size() > kRememberedAborts) aborted_.pop_front();
  root_causes_.Remember(std::string(abort.status.message()), abort.status);
  if (communicator_) communicator_->Abort(abort.run, abort.status);
}

// On the data thread.
void Engine::ReportStalls() {
  if (!communicator_) return;
  wire::Stalled message;
  for (const collective::Stall& stall : communicator_->Stalls(kStalledAfter)) {
    message.stalls.push_back({stall.run, context_.first_device() + static_cast<uint32_t>(stall.device),
                              stall.waits_for_host, stall.op, static_cast<uint64_t>(stall.age.count()), stall.what});
  }
  if (message.stalls.empty() && !stalled_) return;
  stalled_ = !message.stalls.empty();
  context_.Send(message);
}

}  // namespace pathways::worker
