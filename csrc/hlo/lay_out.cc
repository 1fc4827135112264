#include "csrc/hlo/lay_out.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "csrc/hlo/edit.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/op_sharding.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

constexpr size_t kMaxVisited = 512;

template <typename T>
Result<std::vector<T>> ReadNumbers(std::string_view text) {
  std::vector<T> numbers;
  while (!text.empty()) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return InvalidArgument("expected numbers in the target of a pathways.shard");
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return numbers;
}

Result<Tiling> ReadConfig(std::string_view config) {
  constexpr std::string_view kParts = "parts=", kTiles = ";tiles=";
  const size_t middle = config.find(kTiles);
  if (!config.starts_with(kParts) || middle == std::string_view::npos) {
    return InvalidArgument("expected 'pathways.shard:parts=...;tiles=...' as a custom call's target, got '" +
                           std::string(config) + "'");
  }
  PW_ASSIGN_OR_RETURN(std::vector<int64_t> parts,
                      ReadNumbers<int64_t>(config.substr(kParts.size(), middle - kParts.size())));
  PW_ASSIGN_OR_RETURN(std::vector<uint32_t> tiles, ReadNumbers<uint32_t>(config.substr(middle + kTiles.size())));
  return Tiling::Make(std::move(parts), std::move(tiles));
}

bool IsShardCall(std::string_view instruction, std::string_view* config) {
  ProtoReader reader(instruction);
  ProtoField field;
  while (reader.Next(&field)) {
    if (!field.is(instruction_field::kCustomCallTarget, WireType::kBytes)) continue;
    if (!field.bytes.starts_with(kShardTarget)) return false;
    *config = field.bytes.substr(std::string_view(kShardTarget).size());
    return true;
  }
  return false;
}

// The call as XLA knows it; a copy where it says nothing about `devices` devices.
Result<std::string> Translated(std::string_view instruction, std::string_view config, size_t devices) {
  PW_ASSIGN_OR_RETURN(const Tiling tiling, ReadConfig(config));
  ProtoWriter out;
  if (!CopyFieldsExcept(
          instruction,
          {instruction_field::kOpcode, instruction_field::kCustomCallTarget, instruction_field::kBackendConfig,
           instruction_field::kCustomCallApiVersion, instruction_field::kConstrainLayout,
           instruction_field::kOperandShapes, instruction_field::kHasSideEffect, instruction_field::kSharding},
          &out)) {
    return MalformedModule("an instruction");
  }
  if (devices > 1 && tiling.device_count() == devices) {
    out.Bytes(instruction_field::kOpcode, "custom-call");
    out.Bytes(instruction_field::kCustomCallTarget, "Sharding");
    out.Bytes(instruction_field::kSharding, EncodeOpSharding(tiling));
  } else {
    out.Bytes(instruction_field::kOpcode, "copy");
  }
  return std::move(out).Take();
}

Result<std::string> TranslateShardCalls(std::string_view module, size_t devices) {
  if (module.find(kShardTarget) == std::string_view::npos) return std::string(module);
  return EditComputations(module, [devices](std::string_view computation, bool) -> Result<std::string> {
    ProtoWriter out;
    ProtoReader reader(computation);
    ProtoField field;
    while (reader.Next(&field)) {
      std::string_view config;
      if (field.is(computation_field::kInstructions, WireType::kBytes) && IsShardCall(field.bytes, &config)) {
        PW_ASSIGN_OR_RETURN(const std::string translated, Translated(field.bytes, config, devices));
        out.Bytes(computation_field::kInstructions, translated);
      } else {
        out.Raw(field.raw);
      }
    }
    if (!reader.ok()) return MalformedModule("a computation");
    return std::move(out).Take();
  });
}

// Opcodes that give at each place a function of the operands at that place.
bool IsElementwise(std::string_view opcode) {
  static const std::set<std::string_view> kNames = {
      "add",   "subtract", "multiply", "divide", "maximum", "minimum", "power",       "negate",  "abs",
      "sqrt",  "rsqrt",    "convert",  "select", "clamp",   "copy",    "exponential", "log",     "sign",
      "floor", "ceil",     "tanh",     "and",    "or",      "not",     "xor",         "compare", "remainder"};
  return kNames.contains(opcode);
}

struct Node {
  std::string_view opcode, shape;
  int64_t parameter = -1;
  std::vector<int64_t> operands;
  std::optional<std::string_view> layout;  // what follows kShardTarget
};

// The entry computation as a graph.
struct Entry {
  std::unordered_map<int64_t, Node> nodes;
  std::vector<int64_t> results;  // the root's operands, or the root
};

Result<Entry> ReadEntry(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const int64_t entry_id, ReadId(module, module_field::kEntryId));
  PW_ASSIGN_OR_RETURN(const auto computations, SubMessages(module, module_field::kComputations));
  for (const std::string_view computation : computations) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    if (id != entry_id) continue;
    PW_ASSIGN_OR_RETURN(const int64_t root, ReadId(computation, computation_field::kRootId));
    PW_ASSIGN_OR_RETURN(const auto instructions, SubMessages(computation, computation_field::kInstructions));
    Entry entry;
    for (const std::string_view bytes : instructions) {
      PW_ASSIGN_OR_RETURN(const Instruction instruction, ReadInstruction(bytes));
      Node& node = entry.nodes[instruction.id];
      node.opcode = instruction.opcode;
      node.shape = instruction.shape;
      if (instruction.opcode == "parameter") node.parameter = instruction.parameter_number;
      std::string_view config;
      if (instruction.opcode == "custom-call" && IsShardCall(bytes, &config)) node.layout = config;
      PW_ASSIGN_OR_RETURN(node.operands, Integers(bytes, instruction_field::kOperandIds));
    }
    const auto found = entry.nodes.find(root);
    if (found == entry.nodes.end()) return MalformedModule("the entry computation with its root");
    entry.results = found->second.opcode == "tuple" ? found->second.operands : std::vector<int64_t>{root};
    return entry;
  }
  return MalformedModule("the entry computation");
}

// The donated parameters that `result` is computed from element by element, with their distance.
void FindSources(const Entry& entry, int64_t result, const std::set<int64_t>& donors,
                 const std::function<void(int64_t parameter, int depth)>& found) {
  std::deque<std::pair<int64_t, int>> queue = {{result, 0}};
  std::set<int64_t> seen = {result};
  while (!queue.empty() && seen.size() < kMaxVisited) {
    const auto [id, depth] = queue.front();
    queue.pop_front();
    const auto at = entry.nodes.find(id);
    if (at == entry.nodes.end()) continue;
    const Node& node = at->second;
    if (donors.contains(node.parameter)) found(node.parameter, depth);
    if (!IsElementwise(node.opcode)) continue;
    for (const int64_t operand : node.operands) {
      if (seen.insert(operand).second) queue.emplace_back(operand, depth + 1);
    }
  }
}

// How those results lie that are said to, by position.
Result<std::vector<std::optional<Tiling>>> SaidOfResults(std::string_view module, size_t devices) {
  std::vector<std::optional<Tiling>> said;
  if (module.find(kShardTarget) == std::string_view::npos) return said;
  PW_ASSIGN_OR_RETURN(const Entry entry, ReadEntry(module));
  for (const int64_t result : entry.results) {
    said.emplace_back();
    const auto at = entry.nodes.find(result);
    if (at == entry.nodes.end() || !at->second.layout) continue;
    PW_ASSIGN_OR_RETURN(Tiling tiling, ReadConfig(*at->second.layout));
    if (tiling.device_count() == devices) said.back() = std::move(tiling);
  }
  return said;
}

}  // namespace

Result<std::vector<int64_t>> Successors(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  std::vector<int64_t> successors(info.results.size(), -1);
  std::set<int64_t> donors(info.donated_parameters.begin(), info.donated_parameters.end());
  donors.insert(info.aliased_parameters.begin(), info.aliased_parameters.end());
  if (donors.empty() || info.parameters_are_tupled) return successors;
  PW_ASSIGN_OR_RETURN(const Entry entry, ReadEntry(module));
  if (entry.results.size() != info.results.size()) return successors;
  std::vector<std::tuple<int, size_t, int64_t>> candidates;  // depth, result, parameter
  for (size_t k = 0; k < entry.results.size(); ++k) {
    FindSources(entry, entry.results[k], donors, [&](int64_t parameter, int depth) {
      const auto number = static_cast<size_t>(parameter);
      if (number < info.parameters.size() && info.parameters[number] == info.results[k]) {
        candidates.emplace_back(depth, k, parameter);
      }
    });
  }
  std::sort(candidates.begin(), candidates.end());
  std::set<int64_t> taken;
  for (const auto& [depth, result, parameter] : candidates) {
    if (successors[result] < 0 && taken.insert(parameter).second) successors[result] = parameter;
  }
  return successors;
}

Result<std::vector<int64_t>> PassedParameters(std::string_view module) {
  PW_ASSIGN_OR_RETURN(const Entry entry, ReadEntry(module));
  std::vector<int64_t> passed;
  for (int64_t id : entry.results) {
    auto at = entry.nodes.find(id);
    while (at != entry.nodes.end() && at->second.layout && at->second.operands.size() == 1 &&
           at->second.operands[0] != id) {
      id = at->second.operands[0];
      at = entry.nodes.find(id);
    }
    if (at == entry.nodes.end()) return MalformedModule("the operands of its results");
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(at->second.shape));
    passed.push_back(shape.is_tuple() ? -1 : at->second.parameter);
  }
  return passed;
}

Result<LaidOut> LayOut(std::string_view module, std::span<const TilingPtr> parameters, size_t devices) {
  PW_ASSIGN_OR_RETURN(const std::vector<int64_t> successors, Successors(module));
  std::vector<ShardingBytes> inputs, outputs(successors.size());
  for (const TilingPtr& tiling : parameters) inputs.emplace_back(EncodeOpSharding(*tiling));
  LaidOut out;
  out.free.assign(successors.size(), true);
  PW_ASSIGN_OR_RETURN(const std::vector<std::optional<Tiling>> said, SaidOfResults(module, devices));
  for (size_t k = 0; k < successors.size(); ++k) {
    if (k < said.size() && said[k]) {
      outputs[k] = EncodeOpSharding(*said[k]);
      out.free[k] = false;
      continue;
    }
    if (successors[k] < 0 || static_cast<size_t>(successors[k]) >= inputs.size()) continue;
    outputs[k] = inputs[static_cast<size_t>(successors[k])];
    out.free[k] = false;
  }
  PW_ASSIGN_OR_RETURN(const std::string translated, TranslateShardCalls(module, devices));
  PW_ASSIGN_OR_RETURN(out.module, AnnotateShardings(translated, inputs, outputs));
  return out;
}

Result<std::string> WithoutLayouts(std::string_view module) { return TranslateShardCalls(module, 1); }

}  // namespace pathways::hlo
