#include "csrc/sim/compiler.h"

#include "csrc/base/proto.h"
#include "csrc/hlo/hlo.h"
#include "csrc/sim/mlir_text.h"

namespace pathways::sim {
namespace {

// Field numbers of hlo.proto and xla_data.proto (openxla/xla).
namespace module_field {
constexpr uint32_t kComputations = 3, kEntryId = 6;
}
namespace computation_field {
constexpr uint32_t kInstructions = 2, kId = 5, kRootId = 6;
}
namespace instruction_field {
constexpr uint32_t kOpcode = 2, kParameterNumber = 9, kId = 35, kSharding = 40;
}
namespace sharding_field {
constexpr uint32_t kType = 1, kDims = 3, kTuple = 5;
constexpr int64_t kOther = 3;  // OpSharding::Type
}  // namespace sharding_field

struct Shardings {
  std::vector<std::string_view> parameters;  // by number; empty: not said
  std::string_view root;
};

// The entry computation's shardings of parameters and root.
Shardings ReadShardings(std::string_view module) {
  int64_t entry_id = 0;
  std::vector<std::string_view> computations;
  ProtoReader reader(module);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(module_field::kEntryId, WireType::kVarint)) entry_id = field.as_int64();
    if (field.is(module_field::kComputations, WireType::kBytes)) computations.push_back(field.bytes);
  }
  Shardings out;
  for (const std::string_view computation : computations) {
    int64_t id = 0, root_id = 0;
    std::vector<std::string_view> instructions;
    ProtoReader fields(computation);
    while (fields.Next(&field)) {
      if (field.is(computation_field::kId, WireType::kVarint)) id = field.as_int64();
      if (field.is(computation_field::kRootId, WireType::kVarint)) root_id = field.as_int64();
      if (field.is(computation_field::kInstructions, WireType::kBytes)) instructions.push_back(field.bytes);
    }
    if (id != entry_id) continue;
    for (const std::string_view instruction : instructions) {
      std::string_view opcode, sharding;
      int64_t number = 0, instruction_id = 0;
      ProtoReader parts(instruction);
      while (parts.Next(&field)) {
        if (field.is(instruction_field::kOpcode, WireType::kBytes)) opcode = field.bytes;
        if (field.is(instruction_field::kSharding, WireType::kBytes)) sharding = field.bytes;
        if (field.is(instruction_field::kParameterNumber, WireType::kVarint)) number = field.as_int64();
        if (field.is(instruction_field::kId, WireType::kVarint)) instruction_id = field.as_int64();
      }
      if (instruction_id == root_id) out.root = sharding;
      if (opcode != "parameter" || number < 0 || number >= (1 << 20)) continue;
      if (out.parameters.size() <= static_cast<size_t>(number)) out.parameters.resize(static_cast<size_t>(number) + 1);
      out.parameters[static_cast<size_t>(number)] = sharding;
    }
  }
  return out;
}

std::vector<std::string_view> TupleElements(std::string_view op_sharding) {
  std::vector<std::string_view> elements;
  ProtoReader reader(op_sharding);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(sharding_field::kTuple, WireType::kBytes)) elements.push_back(field.bytes);
  }
  return elements;
}

}  // namespace

Result<TensorType> ShardType(const TensorType& whole, std::string_view op_sharding) {
  int64_t type = 0;
  std::vector<int64_t> tiles;
  ProtoReader reader(op_sharding);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(sharding_field::kType, WireType::kVarint)) type = field.as_int64();
    if (field.number == sharding_field::kDims) ForEachInt64(field, [&tiles](int64_t dim) { tiles.push_back(dim); });
  }
  if (!reader.ok()) return InvalidArgument("expected an OpSharding, got malformed bytes");
  if (type != sharding_field::kOther) return whole;  // replicated, or all of it on one device
  if (tiles.size() < whole.dims.size()) {
    return InvalidArgument("expected a sharding of " + std::to_string(whole.dims.size()) + " dimensions for " +
                           whole.ToString() + ", got " + std::to_string(tiles.size()));
  }
  TensorType shard = whole;
  for (size_t d = 0; d < shard.dims.size(); ++d) {
    if (tiles[d] < 1) return InvalidArgument("expected at least one tile per dimension in a sharding");
    shard.dims[d] = (shard.dims[d] + tiles[d] - 1) / tiles[d];
  }
  return shard;
}

bool Fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<std::shared_ptr<const Compiled>> Compiler::Compile(const wire::Register& request, size_t devices,
                                                          const Bytes& module) {
  const size_t partitions = request.one_device ? 1 : devices;
  if (request.format != "hlo" && request.format != "mlir") {
    return Unimplemented("expected a module in the format 'hlo' or 'mlir', got '" + request.format + "'");
  }
  for (const Entry& entry : recent_) {
    if (entry.module == module && entry.partitions == partitions) return entry.compiled;
  }
  auto compiled = std::make_shared<Compiled>();
  if (request.format == "mlir") {
    PW_ASSIGN_OR_RETURN(MlirSignature main, ReadMlirText(*module));
    *compiled = {std::move(main.parameters), std::move(main.results), {}, main.collective};
  } else {
    PW_ASSIGN_OR_RETURN(const hlo::HloModuleInfo info, hlo::ReadHloModule(*module));
    *compiled = {info.parameters, info.results, {}, info.has_cross_device_instructions};
  }
  if (partitions > 1 && request.format == "hlo") {
    const Shardings shardings = ReadShardings(*module);
    for (size_t i = 0; i < compiled->parameters.size() && i < shardings.parameters.size(); ++i) {
      PW_ASSIGN_OR_RETURN(compiled->parameters[i], ShardType(compiled->parameters[i], shardings.parameters[i]));
    }
    compiled->output_sharding = shardings.root;
    const std::vector<std::string_view> elements = TupleElements(shardings.root);
    for (size_t i = 0; i < compiled->outputs.size(); ++i) {
      const std::string_view sharding = !elements.empty() && i < elements.size() ? elements[i] : shardings.root;
      PW_ASSIGN_OR_RETURN(compiled->outputs[i], ShardType(compiled->outputs[i], sharding));
    }
  }
  constexpr size_t kKept = 256;
  recent_.push_front({module, partitions, compiled});
  if (recent_.size() > kKept) recent_.pop_back();
  return std::shared_ptr<const Compiled>(std::move(compiled));
}

int64_t Compiler::CostNs(const std::string& name, bool meets) const {
  double us = options_.default_cost_us;
  for (const CostRule& rule : options_.costs) {
    if (!Fits(rule.pattern, name)) continue;
    us = rule.cost_us;
    break;
  }
  if (meets) us += options_.collective_us;
  return static_cast<int64_t>(us * 1000);
}

bool Compiler::Meets(const wire::Register& request, size_t devices, const Compiled& compiled) const {
  if (request.one_device || devices < 2) return false;
  switch (options_.meeting) {
    case Meeting::kAlways:
      return true;
    case Meeting::kExplicit:
      return compiled.collective;
    case Meeting::kNever:
      return false;
  }
  return false;
}

}  // namespace pathways::sim
