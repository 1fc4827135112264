// ClusterState: the messages of workers.
#include <algorithm>

#include "csrc/controller/cluster_state.h"
#include "csrc/controller/deadlock.h"
#include "csrc/wire/file_bodies.h"

namespace pathways::controller {
namespace {

// A worker looks at its engine with each heartbeat, and small computations run on that thread.
constexpr uint64_t kEngineStillMs = 1500;

}  // namespace

using wire::Type;

Status ClusterState::OnWorkerMessage(uint32_t host, const wire::Head& head, std::string& frame,
                                     std::vector<Payload>& payloads, Outputs& out) {
  Host& state = hosts_[host];
  switch (head.header.type) {
    case Type::kHeartbeat: {
      PW_ASSIGN_OR_RETURN(state.load, wire::Decode<wire::Heartbeat>(head.body));
      ReleaseFetches(host, out);
      return OkStatus();
    }
    case Type::kGoodbye: {
      PW_ASSIGN_OR_RETURN(wire::Goodbye goodbye, wire::Decode<wire::Goodbye>(head.body));
      LoseHost(host, goodbye.reason, out);
      return OkStatus();
    }
    case Type::kDone:
      return OnDone(host, head, frame, out);
    case Type::kRegistered:
      return OnRegistered(host, head, frame, out);
    case Type::kPlanReady:
      return OnPlanReady(host, head, frame, out);
    case Type::kFetched: {
      PW_ASSIGN_OR_RETURN(wire::Fetched answer, wire::Decode<wire::Fetched>(head.body));
      wire::PatchSequence(frame, host + 1);  // the client knows whom it asked
      ToClient(answer.request, std::move(frame), {}, out);
      return OkStatus();
    }
    case Type::kStored: {
      PW_ASSIGN_OR_RETURN(wire::Stored answer, wire::Decode<wire::Stored>(head.body));
      wire::PatchSequence(frame, host + 1);  // the client knows whom it asked
      ToClient(answer.request, std::move(frame), {}, out);
      return OkStatus();
    }
    case Type::kBufferFailed: {
      PW_ASSIGN_OR_RETURN(wire::BufferFailed failed, wire::Decode<wire::BufferFailed>(head.body));
      memory_.Free(host, std::span(&failed.buffer, 1));  // it holds nothing there
      ToClient(failed.buffer, std::move(frame), {}, out);
      return OkStatus();
    }
    case Type::kTransferFailed: {
      PW_ASSIGN_OR_RETURN(wire::TransferFailed failed, wire::Decode<wire::TransferFailed>(head.body));
      wire::PatchSequence(frame, host + 1);  // the receiver knows whose transfer it is
      return ForwardToHost(failed.host, std::move(frame), out);
    }
    case Type::kSpill: {
      PW_ASSIGN_OR_RETURN(wire::Spill spilled, wire::Decode<wire::Spill>(head.body));
      memory_.Spilled(host, spilled.buffers);
      return OkStatus();
    }
    case Type::kAbort: {
      PW_ASSIGN_OR_RETURN(wire::Abort abort, wire::Decode<wire::Abort>(head.body));
      AbortRun(abort, host, out);
      return OkStatus();
    }
    case Type::kStalled: {
      PW_ASSIGN_OR_RETURN(wire::Stalled stalled, wire::Decode<wire::Stalled>(head.body));
      OnStalled(host, std::move(stalled), out);
      return OkStatus();
    }
    case Type::kReply: {
      PW_ASSIGN_OR_RETURN(wire::Reply reply, wire::Decode<wire::Reply>(head.body));
      wire::PatchSequence(frame, host + 1);
      ToClient(reply.request, std::move(frame), std::move(payloads), out);
      return OkStatus();
    }
    default:
      return InvalidArgument("a worker may not send " + std::string(wire::TypeName(head.header.type)));
  }
}

// Each client that waits for the host in its turn, beginning with another one than last time.
void ClusterState::ReleaseFetches(uint32_t host, Outputs& out) {
  std::vector<uint32_t> waiting;
  for (const auto& [index, client] : clients_) {
    if (client.wait == Wait::kFetches && client.wait_for == host) waiting.push_back(index);
  }
  if (waiting.empty()) return;
  std::rotate(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(++fetch_turn_ % waiting.size()), waiting.end());
  for (const uint32_t client : waiting) ReleaseHeld(client, out);
}

Status ClusterState::OnRegistered(uint32_t host, const wire::Head& head, std::string& frame, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::Registered answer, wire::Decode<wire::Registered>(head.body));
  if (answer.host != host) return InvalidArgument("REGISTERED speaks for another host");
  const uint32_t client = static_cast<uint32_t>(wire::ClientOf(answer.function));
  auto owner = clients_.find(client);
  if (owner == clients_.end()) return OkStatus();
  auto function = owner->second.functions.find(answer.function);
  if (function != owner->second.functions.end()) {
    auto compiled = function->second.hosts.find(host);
    if (compiled == function->second.hosts.end()) return InvalidArgument("REGISTERED for a function it was not sent");
    if (compiled->second == Compile::kPending) --function->second.pending;
    compiled->second = answer.status.ok() ? Compile::kReady : Compile::kFailed;
    if (answer.status.ok()) KeepCosts(answer, function->second);
  }
  ToClient(answer.function, std::move(frame), {}, out);
  ReleaseHeld(client, out);
  return OkStatus();
}

Status ClusterState::OnPlanReady(uint32_t host, const wire::Head& head, std::string& frame, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::PlanReady answer, wire::Decode<wire::PlanReady>(head.body));
  if (answer.host != host) return InvalidArgument("PLAN_READY speaks for another host");
  const uint32_t client = static_cast<uint32_t>(wire::ClientOf(answer.program));
  auto owner = clients_.find(client);
  if (owner == clients_.end()) return OkStatus();
  auto program = owner->second.programs.find(answer.program);
  if (program != owner->second.programs.end()) {
    ProgramState& state = program->second;
    auto plan = state.hosts.find(host);
    if (plan == state.hosts.end()) return InvalidArgument("PLAN_READY for a program it was not sent");
    if (plan->second.state == Compile::kPending) --state.pending;
    plan->second.state = answer.status.ok() ? Compile::kReady : Compile::kFailed;
    if (answer.status.ok()) KeepCosts(answer, host, plan->second);
    if (state.failure.ok()) state.failure = answer.status;
  }
  ToClient(answer.program, std::move(frame), {}, out);
  ReleaseHeld(client, out);
  return OkStatus();
}

Status ClusterState::OnDone(uint32_t host, const wire::Head& head, std::string& frame, Outputs& out) {
  PW_ASSIGN_OR_RETURN(wire::Done done, wire::Decode<wire::Done>(head.body));
  // A client hears of a run once: of its first failure, or when its last host is done.
  std::vector<bool> tell;
  tell.reserve(done.outcomes.size());
  bool pass_on = true;
  for (const wire::RunOutcome& outcome : done.outcomes) {
    memory_.PartDone(outcome.run, host, outcome.status.ok());
    const scheduler::PartResult result =
        scheduler_.PartDone(outcome.run, host, outcome.device_us, outcome.status.ok(), now_ms_);
    tell.push_back(result == scheduler::PartResult::kEnded || result == scheduler::PartResult::kFailed);
    pass_on = pass_on && tell.back() && wire::ClientOf(outcome.run) == wire::ClientOf(done.outcomes.front().run);
  }
  if (done.outcomes.empty()) return OkStatus();
  if (pass_on) {  // the usual case: the bytes as they are
    ToClient(done.outcomes.front().run, std::move(frame), {}, out);
    return OkStatus();
  }
  std::map<uint64_t, wire::Done> per_client;
  for (size_t i = 0; i < done.outcomes.size(); ++i) {
    if (!tell[i]) continue;
    const uint64_t client = wire::ClientOf(done.outcomes[i].run);
    per_client[client].outcomes.push_back(std::move(done.outcomes[i]));
  }
  for (const auto& [client, message] : per_client) {
    ToClient(message.outcomes.front().run, wire::Encode(message), {}, out);
  }
  return OkStatus();
}

// --- gangs over several hosts

void ClusterState::AbortRun(const wire::Abort& abort, std::optional<uint32_t> by, Outputs& out) {
  const scheduler::GangShape* shape = scheduler_.ShapeOf(abort.run);
  if (shape == nullptr) return;  // it has ended
  for (const scheduler::GangPart& part : shape->parts) {
    const Host& host = hosts_[part.host];
    if (part.host != by && host.description.alive) Send(host.connection, abort, out);
  }
}

void ClusterState::OnStalled(uint32_t host, wire::Stalled stalled, Outputs& out) {
  stalls_.Hear(host, std::move(stalled.stalls), now_ms_);
  const Deadlock found = stalls_.Confirmed(
      now_ms_, [this](uint64_t run) { return scheduler_.ShapeOf(run); },
      [this](uint32_t index) { return hosts_[index].description.name; });
  if (found.runs.empty()) return;
  Note(found.reason);
  for (const uint64_t run : found.runs) AbortRun({run, Status(Code::kAborted, found.reason)}, std::nullopt, out);
}

// --- hosts that finish nothing

bool ClusterState::IsOverdue(uint32_t host, const scheduler::Unfinished& what, uint64_t now_ms) const {
  return overdue_.IsOverdue(host, what, scheduler_.estimate_us(what.work), now_ms);
}

void ClusterState::TellOfOverdue() {
  if (overdue_.limit_ms() == 0) return;
  std::map<uint32_t, scheduler::Unfinished> overdue = scheduler_.UnfinishedByHost(now_ms_, overdue_.limit_ms());
  // One that is silent is told of already.
  std::erase_if(overdue, [this](const auto& entry) {
    const bool is_silent = hosts_[entry.first].description.alive == wire::kHostSilent;
    return !IsOverdue(entry.first, entry.second, now_ms_) || (is_silent && !overdue_.Knows(entry.first));
  });
  for (const OverdueWatch::Change& change : overdue_.Look(overdue, now_ms_)) {
    const std::string who = DescribeHost(hosts_[change.host].description);
    const scheduler::Unfinished& what = change.what;
    const std::string device = "device " + std::to_string(what.device);
    if (change.over_ms != 0) {
      Note(who + " has finished something on " + device + " again, after " + std::to_string(change.over_ms / 1000) +
           " s");
      continue;
    }
    const uint64_t engine_ms = hosts_[change.host].load.engine_still_ms;
    Note(who + " has finished nothing on " + device + " for " + std::to_string(what.still_ms / 1000) + " s, with " +
         std::to_string(what.gangs) + (what.gangs == 1 ? " computation" : " computations") + " to do; the first is " +
         WorkText(what.client, what.work) + " of " + DescribeClient(what.client) + ", sent " +
         std::to_string(what.age_ms / 1000) +
         (engine_ms >= kEngineStillMs
              ? " s ago; the worker's engine has neither taken a message nor computed for " +
                    std::to_string(engine_ms / 1000) + " s: it waits inside the plugin or a custom call"
              : " s ago; the worker's engine takes messages: the computation is long, waits for what it reads, or the "
                "device hangs"));
  }
}

void ClusterState::ToClient(uint64_t id, std::string frame, std::vector<Payload> payloads, Outputs& out) {
  auto client = clients_.find(static_cast<uint32_t>(wire::ClientOf(id)));
  if (client != clients_.end()) out.push_back({client->second.connection, std::move(frame), std::move(payloads)});
}

}  // namespace pathways::controller
