#include "csrc/worker/program_runs.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace pathways::worker {

Status ProgramRuns::CheckMemory(const Program& program, const wire::RunProgram& run) const {
  const plan::Plan& plan = *program.plan;
  // What the run is given makes room for what it makes.
  std::vector<int64_t> given(plan.peak_bytes().size(), 0);
  const auto give = [&](uint64_t id) {
    const std::shared_ptr<store::Object> object = context_.store().Find(id);
    if (object == nullptr || object->spilled) return;
    for (const store::Object::Shard& shard : object->shards) given[shard.device] += shard.bytes;
  };
  for (const uint32_t position : run.donated) {
    if (position < run.arguments.size() && !(run.arguments[position] & wire::kAssembledBit)) {
      give(run.arguments[position]);
    }
  }
  for (size_t d = 0; d < plan.peak_bytes().size(); ++d) {
    const int64_t bytes = plan.peak_bytes()[d] - given[d];
    if (bytes <= 0) continue;
    const store::MemoryAccount& account = context_.store().account();
    if (account.Fits(d, bytes, 0)) continue;
    const std::string& source = plan.description().source;
    return context_.Here(account.Check(
        d, bytes, 0, "program '" + plan.description().name + "'" + (source.empty() ? "" : " (" + source + ")")));
  }
  return OkStatus();
}

bool ProgramRuns::Start(wire::RunProgram run, uint64_t sequence) {
  const Result<std::shared_ptr<Program>> program = programs_.Ready(run.program);
  Status status = program.status();
  if (status.ok()) {
    const size_t outputs = (*program)->plan->description().outputs.size();
    if (run.output_count == outputs) {
      walked_run_ = std::move(run);
      return Walk(*program, walked_run_, {}, sequence);
    }
    status = context_.Here(InvalidArgument("expected a run with " + std::to_string(outputs) + " outputs, got " +
                                           std::to_string(run.output_count)));
  }
  std::vector<uint64_t> results(std::min(run.output_count, wire::kMaxRunOutputs));
  std::iota(results.begin(), results.end(), run.first_output);
  Refuse(program, run.run, run.first_key, results, status);
  return true;
}

bool ProgramRuns::StartInPlace(const wire::RunInPlace& message, uint64_t sequence) {
  const Result<std::shared_ptr<Program>> program = programs_.Ready(message.program);
  Status status = program.status();
  if (status.ok()) status = context_.Here((*program)->places.Check(message));
  if (status.ok()) {
    (*program)->places.Apply(message);
    (*program)->places.Spell(message, full_run_);
    return Walk(*program, full_run_.run, full_run_.results, sequence);
  }
  // What it would have made anew has no value. Its client fills all places again after a failure (places.h).
  std::vector<uint64_t> results;
  for (size_t i = 0; i < message.after.size() && i < message.before.size(); ++i) {
    if (message.after[i] != message.before[i]) results.push_back(message.after[i]);
  }
  for (uint32_t k = 0; k < std::min(message.output_count, wire::kMaxRunOutputs); ++k) {
    results.push_back(message.first_output + k);
  }
  Refuse(program, message.run, message.first_key, results, status);
  return true;
}

void ProgramRuns::Refuse(const Result<std::shared_ptr<Program>>& program, uint64_t run, uint64_t first_key,
                         std::span<const uint64_t> results, const Status& status) {
  gangs_.AbortElsewhere(run, status);
  if (program.ok()) RefuseTransfers(**program, first_key, status);
  completions_.Poison(run, results, status);
}

void ProgramRuns::RefuseTransfers(const Program& program, uint64_t first_key, const Status& status) {
  for (const wire::PlanStep& step : program.plan->steps()) {
    if (step.kind == wire::StepKind::kSend && step.host != context_.number()) {
      if (Result<std::string> peer = buffers_.PeerOf(step.host); peer.ok()) {
        data_.SendFailure(*peer, first_key + step.channel, status);
      }
    } else if (step.kind == wire::StepKind::kReceive) {
      for (const wire::PlanPiece& piece : step.pieces) {
        if (piece.host != context_.number()) incoming_.Refuse(first_key + piece.channel, piece.host, status);
      }
    }
  }
}

bool ProgramRuns::Walk(const std::shared_ptr<Program>& program, const wire::RunProgram& run,
                       std::span<const uint64_t> results, uint64_t sequence) {
  host_.Begin(program, run, results, sequence, CheckMemory(*program, run));
  return Continue();
}

bool ProgramRuns::Continue() {
  if (!host_.walking()) return true;
  if (!host_.Continue()) return false;
  const Status status = host_.Finish();
  const bool spans_hosts = host_.program().spans_hosts;
  const std::shared_ptr<PendingRun> pending = host_.TakePending();
  if (spans_hosts) {
    if (const Status& failure = status.ok() ? host_.failure() : status; !failure.ok()) {
      gangs_.AbortElsewhere(pending->run, failure);
    }
  }
  if (!status.ok()) {
    causes_.Remember(std::string(status.message()), status);  // it names host and node already
    pending->Fail(status);
  }
  completions_.Enqueued(pending);
  return true;
}

}  // namespace pathways::worker
