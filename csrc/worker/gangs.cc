#include "csrc/worker/gangs.h"

#include <algorithm>

#include "csrc/pjrt/collective_calls.h"

namespace pathways::worker {
namespace {

constexpr size_t kRememberedAborts = 256;  // runs that were aborted
constexpr std::chrono::milliseconds kStalledAfter{1000};

}  // namespace

void Gangs::Start() {
  if (!context_.is_cpu()) return;
  collective::CommunicatorOptions options;
  options.cluster = context_.cluster();
  options.host = context_.number();
  communicator_ = std::make_unique<collective::Communicator>(std::move(options), &data_);
  GangTurns* const turns = this;
  gate_ = std::make_unique<GangGate>(context_.client(), turns);
  pjrt::SetCollectiveBackend(communicator_.get());
}

void Gangs::Stop(const Status& status) {
  if (communicator_) communicator_->Stop(status);
}

void Gangs::HostsChanged() {
  if (!communicator_) return;
  const std::string& machine = cluster_.Find(context_.number())->machine;
  for (const wire::HostDescription& host : cluster_.hosts()) {
    if (host.host == context_.number() || !host.alive) continue;
    communicator_->SetHost(
        {host.host, host.name, !machine.empty() && host.machine == machine, host.data_endpoint, host.machine});
  }
}

void Gangs::HostLost(uint32_t host, const Status& status) {
  if (communicator_) communicator_->HostLost(host, status);
}

Status Gangs::Launch(const Function& function, std::span<const std::span<pjrt::Buffer* const>> rows,
                     std::span<const int64_t> non_donatable, uint64_t run, const collective::LaunchId& launch,
                     pjrt::ExecuteOutputs* outputs) {
  const std::vector<int>& devices = function.computation->devices();
  tickets_.clear();
  ticket_buffers_.clear();
  for (const int device : devices) {
    PW_ASSIGN_OR_RETURN(GangGate::Ticket ticket, gate_->Issue(device));
    tickets_.push_back(std::move(ticket));
  }
  for (GangGate::Ticket& ticket : tickets_) ticket_buffers_.push_back(ticket.buffer());
  PW_RETURN_IF_ERROR(function.computation->Launch(rows, 0, non_donatable, launch, ticket_buffers_, outputs));
  auto gang = std::make_shared<collective::Gang>();
  gang->run = run;
  gang->launch = launch;
  gang->what = function.Describe();
  gang->shards = function.places;
  for (size_t row = 0; row < devices.size(); ++row) {
    gate_->Enter(devices[row], std::move(tickets_[row]), gang, function.local[row], outputs->done[row]);
  }
  return OkStatus();
}

void Gangs::Begin(int device, const GangPtr& gang, uint32_t shard) { communicator_->Begin(device, gang, shard); }

void Gangs::End(int device) { communicator_->End(device); }

void Gangs::Failed(const GangPtr& gang, const Status& status) {
  context_.engine().Post(
      [this, gang, status] { AbortElsewhere(gang->run, completions_.RootCauseOf(gang->run, status, gang->what)); });
}

bool Gangs::NoteAborted(uint64_t run) {
  if (std::find(aborted_.begin(), aborted_.end(), run) != aborted_.end()) return false;
  aborted_.push_back(run);
  if (aborted_.size() > kRememberedAborts) aborted_.pop_front();
  return true;
}

void Gangs::AbortElsewhere(uint64_t run, const Status& status) {
  if (!NoteAborted(run)) return;
  // Its other collectives have lost their meaning here, too.
  if (communicator_) communicator_->Abort(run, status);
  context_.Send(wire::Abort{run, status});
}

void Gangs::Abort(const wire::Abort& abort) {
  if (!NoteAborted(abort.run)) return;
  causes_.Remember(std::string(abort.status.message()), abort.status);
  if (communicator_) communicator_->Abort(abort.run, abort.status);
}

std::vector<collective::Stall> Gangs::Stalls(std::chrono::milliseconds older_than) const {
  return communicator_ ? communicator_->Stalls(older_than) : std::vector<collective::Stall>();
}

void Gangs::ReportStalls() {
  wire::Stalled message;
  for (const collective::Stall& stall : Stalls(kStalledAfter)) {
    message.stalls.push_back({stall.run, context_.first_device() + static_cast<uint32_t>(stall.device),
                              stall.waits_for_host, stall.op, static_cast<uint64_t>(stall.age.count()), stall.what});
  }
  if (message.stalls.empty() && !stalled_) return;
  stalled_ = !message.stalls.empty();
  context_.Send(message);
}

}  // namespace pathways::worker
