#include "csrc/plan/plan.h"

#include <algorithm>
#include <optional>

#include "csrc/base/strided.h"

namespace pathways::plan {
namespace {

using wire::PlanSlot;
using wire::PlanStep;
using wire::StepKind;

Status CheckPart(const PlanSlot& slot, const wire::Box& box) {
  if (box.whole() && box.size.empty()) return OkStatus();
  return CheckBox(slot.type, {box.start, box.size});
}

}  // namespace

Result<Plan> Plan::Make(wire::RegisterPlan description, uint32_t first_device, uint32_t device_count) {
  Plan plan;
  plan.description_ = std::move(description);
  if (Status status = plan.Check(first_device, device_count); !status.ok()) {
    return status.WithPrefix("the plan of program '" + plan.description_.name + "'");
  }
  for (const PlanStep& step : plan.steps()) {
    if (step.kind == StepKind::kExecute) plan.functions_.push_back(step.function);
  }
  std::sort(plan.functions_.begin(), plan.functions_.end());
  plan.functions_.erase(std::unique(plan.functions_.begin(), plan.functions_.end()), plan.functions_.end());
  plan.FindLeaves();
  plan.MeasureMemory(first_device, device_count);
  return plan;
}

Status Plan::Check(uint32_t first_device, uint32_t device_count) const {
  for (size_t i = 0; i < slots().size(); ++i) {
    const PlanSlot& slot = slots()[i];
    if (slot.shards.empty() || slot.shards.size() != slot.devices.size()) {
      return InvalidArgument("slot " + std::to_string(i) + " needs at least one shard, and a device for each");
    }
    for (uint32_t device : slot.devices) {
      if (device < first_device || device - first_device >= device_count) {
        return InvalidArgument("slot " + std::to_string(i) + " names device " + std::to_string(device) +
                               ", which is not of this host");
      }
    }
  }
  std::vector<char> written(slots().size(), 0);
  for (const wire::PlanPort& port : description_.inputs) {
    if (port.slot == wire::kNoSlot) continue;
    if (port.slot >= slots().size() || written[port.slot]) {
      return InvalidArgument("an input names slot " + std::to_string(port.slot) + ", which is not there or taken");
    }
    for (uint32_t shard : slots()[port.slot].shards) {
      if (shard >= port.shard_count) return InvalidArgument("an input's slot names a shard that it does not have");
    }
    written[port.slot] = 1;
  }
  for (size_t i = 0; i < steps().size(); ++i) {
    if (Status status = CheckStep(steps()[i], written); !status.ok()) {
      return status.WithPrefix("step " + std::to_string(i));
    }
  }
  for (const wire::PlanPort& port : description_.outputs) {
    if (port.slot == wire::kNoSlot) continue;
    if (port.slot >= slots().size() || written[port.slot] != 1) {
      return InvalidArgument("an output names slot " + std::to_string(port.slot) + ", which holds nothing at the end");
    }
  }
  return OkStatus();
}

Status Plan::CheckOrder(const std::function<bool(const PlanStep&)>& spans_hosts) const {
  std::optional<uint32_t> before;
  for (const PlanStep& step : steps()) {
    if (step.kind != StepKind::kExecute || !spans_hosts(step)) continue;
    if (before && step.gang <= *before) {
      return InvalidArgument(Describe(step) +
                             ": hosts that share gangs must enqueue them in one order, and after gang " +
                             std::to_string(*before) + " of the program comes gang " + std::to_string(step.gang));
    }
    before = step.gang;
  }
  return OkStatus();
}

// `written`: 0 never, 1 holds a value, 2 freed or donated.
Status Plan::CheckStep(const PlanStep& step, std::vector<char>& written) const {
  if (step.kind != StepKind::kFree && step.node >= description_.nodes.size()) {
    return InvalidArgument("expected a node below " + std::to_string(description_.nodes.size()) + ", got " +
                           std::to_string(step.node));
  }
  const auto read = [&](uint32_t slot) -> Status {
    if (slot >= slots().size()) return InvalidArgument("there is no slot " + std::to_string(slot));
    if (written[slot] == 0) return InvalidArgument("slot " + std::to_string(slot) + " is read before it is written");
    if (written[slot] == 2) return InvalidArgument("slot " + std::to_string(slot) + " is used after it was given up");
    return OkStatus();
  };
  const auto shard_of = [&](uint32_t slot, uint32_t shard) -> Status {
    if (shard < slots()[slot].shards.size()) return OkStatus();
    return InvalidArgument("slot " + std::to_string(slot) + " has no shard at position " + std::to_string(shard));
  };
  const auto exactly = [](const std::vector<uint32_t>& list, size_t count, const char* what) -> Status {
    if (list.size() == count) return OkStatus();
    return InvalidArgument("expected " + std::to_string(count) + " " + what + ", got " + std::to_string(list.size()));
  };
  for (uint32_t slot : step.arguments) PW_RETURN_IF_ERROR(read(slot));
  for (uint32_t slot : step.results) {
    if (slot >= slots().size()) return InvalidArgument("there is no slot " + std::to_string(slot));
  }
  switch (step.kind) {
    case StepKind::kExecute: {
      for (uint32_t position : step.donated) {
        if (position >= step.arguments.size()) return InvalidArgument("it gives up an argument that it does not have");
      }
      for (uint32_t position : step.donated) written[step.arguments[position]] = 2;
      for (uint32_t slot : step.results) {
        if (written[slot] != 0) return InvalidArgument("slot " + std::to_string(slot) + " is written twice");
        written[slot] = 1;
      }
      return OkStatus();
    }
    case StepKind::kSend:
      PW_RETURN_IF_ERROR(exactly(step.arguments, 1, "slot to send"));
      PW_RETURN_IF_ERROR(shard_of(step.arguments[0], step.shard));
      if (step.channel >= description_.channels) return InvalidArgument("its channel is out of range");
      return CheckPart(slots()[step.arguments[0]], step.box);
    case StepKind::kReceive:
      PW_RETURN_IF_ERROR(exactly(step.results, 1, "slot to fill"));
      PW_RETURN_IF_ERROR(shard_of(step.results[0], step.shard));
      if (written[step.results[0]] == 2) return InvalidArgument("it fills a slot that was given up");
      if (step.pieces.empty() && slots()[step.results[0]].type.ByteSize() > 0) {
        return InvalidArgument("it receives nothing");
      }
      for (const wire::PlanPiece& piece : step.pieces) {
        if (piece.channel >= description_.channels) return InvalidArgument("its channel is out of range");
        if (step.pieces.size() > 1 && piece.box.start.empty() && !slots()[step.results[0]].type.dims.empty()) {
          return InvalidArgument("one of several pieces covers everything");
        }
        PW_RETURN_IF_ERROR(CheckPart(slots()[step.results[0]], piece.box));
      }
      written[step.results[0]] = 1;
      return OkStatus();
    case StepKind::kCopy:
      PW_RETURN_IF_ERROR(exactly(step.arguments, 1, "slot to copy from"));
      PW_RETURN_IF_ERROR(exactly(step.results, 1, "slot to fill"));
      PW_RETURN_IF_ERROR(shard_of(step.arguments[0], step.source_shard));
      PW_RETURN_IF_ERROR(shard_of(step.results[0], step.shard));
      if (written[step.results[0]] == 2) return InvalidArgument("it fills a slot that was given up");
      if (slots()[step.arguments[0]].type != slots()[step.results[0]].type) {
        return InvalidArgument("expected a copy between slots of one type, got " +
                               slots()[step.arguments[0]].type.ToString() + " to " +
                               slots()[step.results[0]].type.ToString());
      }
      written[step.results[0]] = 1;
      return OkStatus();
    case StepKind::kFree:
      for (uint32_t slot : step.arguments) written[slot] = 2;
      return OkStatus();
  }
  return InvalidArgument("there is no kind of step " + std::to_string(static_cast<int>(step.kind)));
}

void Plan::FindLeaves() {
  leaf_.assign(steps().size(), 0);
  std::vector<char> used(slots().size(), 0);
  for (size_t i = steps().size(); i-- > 0;) {
    const PlanStep& step = steps()[i];
    if (step.kind != StepKind::kExecute) continue;
    leaf_[i] = std::none_of(step.results.begin(), step.results.end(), [&](uint32_t slot) { return used[slot]; });
    for (uint32_t slot : step.arguments) used[slot] = 1;
  }
}

void Plan::MeasureMemory(uint32_t first_device, uint32_t device_count) {
  std::vector<int64_t> held(device_count, 0);
  std::vector<char> live(slots().size(), 0);  // 1: made here, 2: an argument
  peak_bytes_.assign(device_count, 0);
  result_bytes_.assign(device_count, 0);
  const auto each = [&](uint32_t slot, std::vector<int64_t>& bytes, int64_t sign) {
    for (uint32_t device : slots()[slot].devices) bytes[device - first_device] += sign * slots()[slot].type.ByteSize();
  };
  for (const wire::PlanPort& port : description_.inputs) {
    if (port.slot != wire::kNoSlot) live[port.slot] = 2;
  }
  const auto drop = [&](uint32_t slot) {
    if (live[slot] == 1) each(slot, held, -1);
    live[slot] = 0;
  };
  for (const PlanStep& step : steps()) {
    for (uint32_t slot : step.results) {
      if (live[slot] == 0) each(slot, held, 1);
      if (live[slot] == 0) live[slot] = 1;
    }
    for (uint32_t position : step.donated) drop(step.arguments[position]);
    for (uint32_t d = 0; d < device_count; ++d) peak_bytes_[d] = std::max(peak_bytes_[d], held[d]);
    if (step.kind == StepKind::kFree) {
      for (uint32_t slot : step.arguments) drop(slot);
    }
  }
  for (const wire::PlanPort& port : description_.outputs) {
    if (port.slot != wire::kNoSlot) each(port.slot, result_bytes_, 1);
  }
}

std::string Plan::Describe(const PlanStep& step) const {
  return "node '" + description_.nodes[step.node] + "' of program '" + description_.name + "'";
}

}  // namespace pathways::plan
