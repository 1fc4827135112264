#include "csrc/worker/computation.h"

#include <algorithm>
#include <set>
#include <utility>

#include "csrc/hlo/hlo.h"

namespace pathways::worker {

int32_t LaunchNumber(const collective::LaunchId& launch) {
  constexpr uint64_t kNodes = 1'000'003, kNumbers = INT32_MAX;
  return static_cast<int32_t>((launch.sequence % kNumbers * kNodes + launch.node) % kNumbers + 1);
}

Computation::Computation(Kind kind, std::vector<Executable> executables)
    : kind_(kind), executables_(std::move(executables)) {
  std::set<const pjrt::Executable*> counted;
  for (const Executable& executable : executables_) {
    const auto memory = counted.insert(executable.get()).second ? executable->MemoryStats() : std::nullopt;
    if (!memory) continue;
    temp_bytes_ = std::max(temp_bytes_, memory->temporary);
    code_bytes_ += memory->generated_code;
  }
}

Computation Computation::Portable(Executable executable) { return {Kind::kPortable, {std::move(executable)}}; }

Computation Computation::Shards(std::vector<Executable> executables, std::vector<int> devices,
                                std::string output_sharding) {
  Computation out(Kind::kShards, std::move(executables));
  out.output_sharding_ = std::move(output_sharding);
  out.executables_.resize(devices.size(), out.executables_[0]);
  out.devices_ = std::move(devices);
  return out;
}

Computation Computation::Spanning(std::vector<Executable> executables, std::vector<int> devices,
                                  std::string output_sharding) {
  Computation out = Shards(std::move(executables), std::move(devices), std::move(output_sharding));
  out.kind_ = Kind::kSpanning;
  return out;
}

Result<Computation> Computation::Gang(Executable executable, std::span<const int> devices) {
  Computation out(Kind::kGang, {std::move(executable)});
  const std::vector<int>& rows = out.executables_[0]->devices();
  bool same_order = true;
  for (const int device : rows) {
    const auto shard = std::find(devices.begin(), devices.end(), device);
    if (shard == devices.end() || rows.size() != devices.size()) {
      return Internal("expected an executable on the " + std::to_string(devices.size()) +
                      " devices it was compiled for, got one on " + std::to_string(rows.size()) +
                      ", among them device " + std::to_string(device));
    }
    const auto index = static_cast<size_t>(shard - devices.begin());
    same_order = same_order && index == out.row_to_shard_.size();
    out.row_to_shard_.push_back(index);
  }
  if (same_order) out.row_to_shard_.clear();
  return out;
}

std::vector<TensorType> Computation::OutputTypes() const {
  std::vector<TensorType> types;
  for (const auto& type : executables_[0]->output_types()) types.push_back(*type);
  return types;
}

Result<std::string> Computation::OutputSharding() const {
  if (kind_ != Kind::kGang) return output_sharding_;
  PW_ASSIGN_OR_RETURN(const pjrt::OptimizedProgram program, executables_[0]->GetOptimizedProgram());
  PW_ASSIGN_OR_RETURN(const std::string_view module, hlo::HloModuleOfProgram(program.format, program.code));
  PW_ASSIGN_OR_RETURN(hlo::HloModuleInfo info, hlo::ReadHloModule(module));
  return std::move(info.output_sharding);
}

Status Computation::Launch(std::span<const std::span<pjrt::Buffer* const>> rows, int device,
                           std::span<const int64_t> non_donatable, const collective::LaunchId& launch,
                           std::span<pjrt::Buffer* const> tickets, pjrt::ExecuteOutputs* outputs) const {
  pjrt::ExecuteArgs args;
  args.arguments = rows;
  args.non_donatable = non_donatable;
  args.launch_id = LaunchNumber(launch);
  switch (kind_) {
    case Kind::kPortable:
      args.execute_device = device;
      return executables_[0]->Execute(args, outputs);
    case Kind::kGang:
      return LaunchGang(args, outputs);
    case Kind::kShards:
    case Kind::kSpanning:
      return LaunchShards(args, tickets, outputs);
  }
  return Internal("a computation of no kind");
}

Status Computation::LaunchGang(const pjrt::ExecuteArgs& args, pjrt::ExecuteOutputs* outputs) const {
  const size_t count = args.arguments.size();
  if (row_to_shard_.empty() || count != row_to_shard_.size()) return executables_[0]->Execute(args, outputs);
  thread_local std::vector<std::span<pjrt::Buffer* const>> rows;
  thread_local pjrt::ExecuteOutputs in_rows;
  rows.clear();
  for (const size_t shard : row_to_shard_) rows.push_back(args.arguments[shard]);
  pjrt::ExecuteArgs reordered = args;
  reordered.arguments = rows;
  PW_RETURN_IF_ERROR(executables_[0]->Execute(reordered, &in_rows));
  outputs->buffers.resize(count);
  outputs->done.resize(count);
  for (size_t row = 0; row < count; ++row) {
    std::swap(outputs->buffers[row_to_shard_[row]], in_rows.buffers[row]);
    outputs->done[row_to_shard_[row]] = std::move(in_rows.done[row]);
  }
  for (auto& row : in_rows.buffers) row.clear();
  return OkStatus();
}

Status Computation::LaunchShards(pjrt::ExecuteArgs args, std::span<pjrt::Buffer* const> tickets,
                                 pjrt::ExecuteOutputs* outputs) const {
  const auto rows = args.arguments;
  if (rows.size() != devices_.size()) {
    return InvalidArgument("expected arguments for the " + std::to_string(devices_.size()) +
                           " shards of this host, got " + std::to_string(rows.size()));
  }
  if (tickets.size() != (is_spanning() ? rows.size() : 0)) return Internal("a ticket for each spanning shard");
  thread_local pjrt::ExecuteOutputs one;
  thread_local std::vector<pjrt::Buffer*> with_ticket;
  outputs->buffers.resize(rows.size());
  outputs->done.resize(rows.size());
  for (size_t shard = 0; shard < rows.size(); ++shard) {
    std::span<pjrt::Buffer* const> row = rows[shard];
    if (is_spanning()) {
      with_ticket.assign(row.begin(), row.end());
      with_ticket.push_back(tickets[shard]);
      row = with_ticket;
    }
    args.arguments = {&row, 1};
    args.execute_device = devices_[shard];
    PW_RETURN_IF_ERROR(executables_[shard]->Execute(args, &one));
    std::swap(outputs->buffers[shard], one.buffers[0]);
    one.buffers[0].clear();
    outputs->done[shard] = std::move(one.done[0]);
  }
  return OkStatus();
}

}  // namespace pathways::worker
