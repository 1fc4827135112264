#include "csrc/hlo/numbers.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/hlo/elementwise.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/skeleton.h"

namespace pathways::hlo {
namespace {

constexpr uint32_t kSliceStart = 1, kSliceLimit = 2, kSliceStride = 3;

// Elementwise, but not the same, up to rounding, for a constant operand and a parameter: XLA makes a product of a
// power.
constexpr std::array<std::string_view, 4> kKnowsConstants = {"bitcast-convert", "count-leading-zeros", "power",
                                                             "reduce-precision"};
// Not elementwise, and the same for both.
constexpr std::array<std::string_view, 3> kNeutral = {"dot", "dynamic-slice", "dynamic-update-slice"};
// What hands a number on: what becomes of it behind them is what counts.
constexpr std::array<std::string_view, 8> kPassing = {"broadcast", "concatenate", "convert", "copy",
                                                      "reshape",   "reverse",     "slice",   "transpose"};

template <size_t N>
bool OneOf(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// How far an operand lies from the beginning of what is padded, by dimension; nothing where it is cut, or spread out.
Result<std::optional<std::vector<int64_t>>> ReadPadding(std::string_view instruction) {
  constexpr uint32_t kDimension = 1, kLow = 1, kHigh = 2, kInterior = 3;  // of PaddingConfig and its dimensions
  PW_ASSIGN_OR_RETURN(const auto configs, SubMessages(instruction, instruction_field::kPaddingConfig));
  if (configs.size() != 1) return MalformedModule("a pad");
  PW_ASSIGN_OR_RETURN(const auto dimensions, SubMessages(configs[0], kDimension));
  std::vector<int64_t> lows;
  for (const std::string_view dimension : dimensions) {
    PW_ASSIGN_OR_RETURN(const int64_t low, ReadId(dimension, kLow));
    PW_ASSIGN_OR_RETURN(const int64_t high, ReadId(dimension, kHigh));
    PW_ASSIGN_OR_RETURN(const int64_t interior, ReadId(dimension, kInterior));
    if (low < 0 || high < 0 || interior != 0) return std::optional<std::vector<int64_t>>();
    lows.push_back(low);
  }
  return std::optional(std::move(lows));
}

struct SliceRange {
  int64_t start = 0, limit = 0, stride = 1;
};

Result<SliceRange> ReadRange(std::string_view bytes) {
  SliceRange range;
  PW_ASSIGN_OR_RETURN(range.start, ReadId(bytes, kSliceStart));
  PW_ASSIGN_OR_RETURN(range.limit, ReadId(bytes, kSliceLimit));
  PW_ASSIGN_OR_RETURN(range.stride, ReadId(bytes, kSliceStride));
  return range;
}

struct ParsedInstruction {
  std::string_view bytes;
  Instruction instruction;
  std::vector<int64_t> operands;
};

// A number, and where it stands: in a constant (dimension -1), or at the start of a slice's dimension.
struct NumberPlace {
  size_t at = 0;  // of the instruction
  int dimension = -1;
  ModuleNumber number;
};

class NumberedEntry {
 public:
  static Result<NumberedEntry> Read(std::string_view computation, Openness openness) {
    NumberedEntry entry;
    entry.openness_ = openness;
    PW_ASSIGN_OR_RETURN(entry.root_id_, ReadId(computation, computation_field::kRootId));
    PW_ASSIGN_OR_RETURN(const auto all, SubMessages(computation, computation_field::kInstructions));
    for (const std::string_view bytes : all) {
      ParsedInstruction parsed;
      parsed.bytes = bytes;
      PW_ASSIGN_OR_RETURN(parsed.instruction, ReadInstruction(bytes));
      PW_ASSIGN_OR_RETURN(parsed.operands, Integers(bytes, instruction_field::kOperandIds));
      const size_t at = entry.instructions_.size();
      entry.at_[parsed.instruction.id] = at;
      entry.instructions_.push_back(std::move(parsed));
    }
    entry.users_.resize(entry.instructions_.size());
    for (size_t at = 0; at < entry.instructions_.size(); ++at) {
      const std::vector<int64_t>& operands = entry.instructions_[at].operands;
      for (size_t i = 0; i < operands.size(); ++i) {
        const auto found = entry.at_.find(operands[i]);
        if (found == entry.at_.end() || found->second >= at) return MalformedModule("operands before their users");
        entry.users_[found->second].push_back({at, i});
      }
    }
    PW_RETURN_IF_ERROR(entry.FindPlaces());
    return entry;
  }

  const std::vector<ParsedInstruction>& instructions() const { return instructions_; }
  const std::vector<NumberPlace>& places() const { return places_; }

 private:
  Status FindPlaces() {
    // Users stand behind what they use, so one pass from the end knows of each instruction what becomes of it.
    std::vector<bool> neutral(instructions_.size());
    for (size_t at = instructions_.size(); at-- > 0;) {
      neutral[at] = std::all_of(users_[at].begin(), users_[at].end(),
                                [&](const auto& user) { return Treats(user.first, user.second, neutral); });
    }
    for (size_t at = 0; at < instructions_.size(); ++at) {
      const Instruction& instruction = instructions_[at].instruction;
      if (instruction.sharding) continue;
      if (instruction.opcode == "constant" && neutral[at] && instruction.id != root_id_)
        PW_RETURN_IF_ERROR(AddConstant(at));
      if (instruction.opcode == "slice") PW_RETURN_IF_ERROR(AddSlice(at));
      if (instruction.opcode == "pad") PW_RETURN_IF_ERROR(AddPad(at));
    }
    return OkStatus();
  }

  // Whether the instruction treats a constant and a parameter alike as its operand number `operand`.
  bool Treats(size_t at, size_t operand, const std::vector<bool>& neutral) const {
    const Instruction& instruction = instructions_[at].instruction;
    if (OneOf(kPassing, instruction.opcode)) return neutral[at];
    if (instruction.opcode == "tuple") return instruction.id == root_id_;
    // XLA multiplies by the reciprocal of a constant.
    if (instruction.opcode == "divide" && operand == 1 && openness_ == Openness::kAlike) {
      const Result<Shape> shape = ReadShape(instruction.shape);
      return shape.ok() && !IsFloatingPoint(DTypeFromXlaPrimitive(shape->element_type));
    }
    if (instruction.opcode == "reduce") return operand < instructions_[at].operands.size() / 2;  // not where it begins
    if (instruction.opcode == "pad") return operand == 0;
    if (instruction.opcode == "gather" || instruction.opcode == "scatter") return operand == 1;  // the indices
    return OneOf(kNeutral, instruction.opcode) ||
           (IsElementwise(instruction.opcode) && !OneOf(kKnowsConstants, instruction.opcode));
  }

  Status AddConstant(size_t at) {
    const ParsedInstruction& parsed = instructions_[at];
    PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(parsed.instruction.shape));
    if (!shape.dims.empty() || shape.is_tuple()) return OkStatus();
    const DType dtype = DTypeFromXlaPrimitive(shape.element_type);
    PW_ASSIGN_OR_RETURN(const auto literals, SubMessages(parsed.bytes, instruction_field::kLiteral));
    if (literals.size() != 1) return MalformedModule("a constant");
    if (const std::optional<uint64_t> bits = ScalarOf(literals[0], dtype)) places_.push_back({at, -1, {dtype, *bits}});
    return OkStatus();
  }

  Status AddSlice(size_t at) {
    const ParsedInstruction& parsed = instructions_[at];
    if (parsed.operands.size() != 1) return MalformedModule("a slice");
    PW_ASSIGN_OR_RETURN(const Shape whole, ReadShape(instructions_[at_.at(parsed.operands[0])].instruction.shape));
    PW_ASSIGN_OR_RETURN(const auto ranges, SubMessages(parsed.bytes, instruction_field::kSliceDimensions));
    if (ranges.size() != whole.dims.size() || whole.dynamic) return OkStatus();
    std::vector<NumberPlace> found;
    for (size_t i = 0; i < ranges.size(); ++i) {
      PW_ASSIGN_OR_RETURN(const SliceRange range, ReadRange(ranges[i]));
      if (range.stride != 1) return OkStatus();
      if (range.limit - range.start == whole.dims[i]) continue;
      found.push_back({at, static_cast<int>(i), {DType::kS64, static_cast<uint64_t>(range.start)}});
    }
    places_.insert(places_.end(), found.begin(), found.end());
    return OkStatus();
  }

  Status AddPad(size_t at) {
    const ParsedInstruction& parsed = instructions_[at];
    if (parsed.operands.size() != 2) return MalformedModule("a pad");
    PW_ASSIGN_OR_RETURN(const auto lows, ReadPadding(parsed.bytes));
    PW_ASSIGN_OR_RETURN(const Shape part, ReadShape(instructions_[at_.at(parsed.operands[0])].instruction.shape));
    PW_ASSIGN_OR_RETURN(const Shape whole, ReadShape(parsed.instruction.shape));
    if (!lows || whole.dims.size() != lows->size() || part.dims.size() != lows->size()) return OkStatus();
    for (size_t i = 0; i < lows->size(); ++i) {
      if (part.dims[i] == whole.dims[i]) continue;
      places_.push_back({at, static_cast<int>(i), {DType::kS64, static_cast<uint64_t>((*lows)[i])}});
    }
    return OkStatus();
  }

  Openness openness_ = Openness::kAlike;
  int64_t root_id_ = 0;
  std::vector<ParsedInstruction> instructions_;
  std::map<int64_t, size_t> at_;                               // by id
  std::vector<std::vector<std::pair<size_t, size_t>>> users_;  // and which of their operands it is
  std::vector<NumberPlace> places_;
};

// Writes the entry computation anew, with a parameter for each open place.
class Opener {
 public:
  Opener(const NumberedEntry& entry, std::span<const size_t> positions, int64_t first_parameter)
      : entry_(entry), parameter_(first_parameter) {
    for (const size_t position : positions) open_.push_back(entry.places()[position]);
    for (const ParsedInstruction& parsed : entry.instructions())
      next_id_ = std::max(next_id_, parsed.instruction.id + 1);
  }

  // Adds the new parameters to an encoded ProgramShapeProto, whose parameters come before its result.
  std::string Widen(std::string_view program_shape) const {
    std::string out(program_shape);
    for (size_t i = 0; i < open_.size(); ++i) {
      out = WithParameter(out, ArrayShape(open_[i].number.dtype, {}), Name(parameter_ + static_cast<int64_t>(i)));
    }
    return out;
  }

  Result<std::string> Open(std::string_view computation) {
    ProtoReader reader(computation);
    ProtoField field;
    size_t at = 0, next = 0;
    int64_t parameter = parameter_;
    while (reader.Next(&field)) {
      if (field.is(computation_field::kProgramShape, WireType::kBytes)) {
        out_.Bytes(field.number, Widen(field.bytes));
        continue;
      }
      if (!field.is(computation_field::kInstructions, WireType::kBytes)) {
        out_.Raw(field.raw);
        continue;
      }
      std::map<int, int64_t> of_dimension;  // the id of its parameter
      const Instruction& instruction = entry_.instructions()[at].instruction;
      for (; next < open_.size() && open_[next].at == at; ++next) {
        const int64_t id = open_[next].dimension < 0 ? instruction.id : next_id_++;
        of_dimension[open_[next].dimension] = id;
        ProtoWriter number;
        number.Int64(instruction_field::kParameterNumber, parameter);
        WriteInstruction(id, Name(parameter++), "parameter", ArrayShape(open_[next].number.dtype, {}), {},
                         number.bytes(), &out_);
      }
      if (of_dimension.empty()) {
        out_.Raw(field.raw);
      } else if (!of_dimension.contains(-1)) {
        const bool pads = instruction.opcode == "pad";
        PW_RETURN_IF_ERROR(pads ? WritePlaced(entry_.instructions()[at], of_dimension)
                                : WriteDynamicSlice(entry_.instructions()[at], of_dimension));
      }
      ++at;
    }
    if (!reader.ok()) return MalformedModule("a computation");
    return std::move(out_).Take();
  }

 private:
  static std::string Name(int64_t parameter) { return "number." + std::to_string(parameter); }

  Status WriteDynamicSlice(const ParsedInstruction& slice, const std::map<int, int64_t>& of_dimension) {
    PW_ASSIGN_OR_RETURN(const auto ranges, SubMessages(slice.bytes, instruction_field::kSliceDimensions));
    std::vector<int64_t> operands = slice.operands;
    ProtoWriter fields;
    for (size_t i = 0; i < ranges.size(); ++i) {
      PW_ASSIGN_OR_RETURN(const SliceRange range, ReadRange(ranges[i]));
      fields.Int64(instruction_field::kDynamicSliceSizes, range.limit - range.start);
      const auto found = of_dimension.find(static_cast<int>(i));
      operands.push_back(found != of_dimension.end() ? found->second : WriteConstant(range.start));
    }
    PW_ASSIGN_OR_RETURN(const auto metadata, SubMessages(slice.bytes, instruction_field::kMetadata));
    for (const std::string_view each : metadata) fields.Bytes(instruction_field::kMetadata, each);
    const Instruction& old = slice.instruction;
    WriteInstruction(old.id, old.name, "dynamic-slice", old.shape, operands, fields.bytes(), &out_);
    return OkStatus();
  }

  // A pad is its first operand, written into what is filled with its second.
  Status WritePlaced(const ParsedInstruction& pad, const std::map<int, int64_t>& of_dimension) {
    PW_ASSIGN_OR_RETURN(const auto lows, ReadPadding(pad.bytes));
    const Instruction& old = pad.instruction;
    const int64_t filled = next_id_++;
    WriteInstruction(filled, "filled." + std::to_string(filled), "broadcast", old.shape, {pad.operands[1]}, "", &out_);
    std::vector<int64_t> operands{filled, pad.operands[0]};
    for (size_t i = 0; i < lows->size(); ++i) {
      const auto found = of_dimension.find(static_cast<int>(i));
      operands.push_back(found != of_dimension.end() ? found->second : WriteConstant((*lows)[i]));
    }
    WriteInstruction(old.id, old.name, "dynamic-update-slice", old.shape, operands, "", &out_);
    return OkStatus();
  }

  int64_t WriteConstant(int64_t value) {
    ProtoWriter fields;
    fields.Bytes(instruction_field::kLiteral, WholeLiteral(DType::kS64, value));
    WriteInstruction(next_id_, "start." + std::to_string(next_id_), "constant", ArrayShape(DType::kS64, {}), {},
                     fields.bytes(), &out_);
    return next_id_++;
  }

  const NumberedEntry& entry_;
  std::vector<NumberPlace> open_;
  const int64_t parameter_;
  ProtoWriter out_;
  int64_t next_id_ = 1;
};

}  // namespace

Result<ModuleNumbers> ReadNumbers(std::string_view module) { return ReadNumbersAndSizes(module, nullptr); }

Result<ModuleNumbers> ReadNumbersAndSizes(std::string_view module, std::vector<int64_t>* sizes) {
  PW_ASSIGN_OR_RETURN(const std::string_view computation, EntryComputation(module));
  const Openness openness = sizes == nullptr ? Openness::kAlike : Openness::kDivisorsToo;
  PW_ASSIGN_OR_RETURN(const NumberedEntry entry, NumberedEntry::Read(computation, openness));
  ModuleNumbers out;
  for (const NumberPlace& place : entry.places()) out.numbers.push_back(place.number);
  OpenNumbers open;
  for (const NumberPlace& place : entry.places()) open[place.at].push_back(place.dimension);
  PW_ASSIGN_OR_RETURN(out.skeleton, Skeleton(module, open, sizes));
  return out;
}

Result<std::string> WithNumbersAsParameters(std::string_view module, std::span<const size_t> positions,
                                            Openness openness) {
  PW_ASSIGN_OR_RETURN(const HloModuleInfo info, ReadHloModule(module));
  if (info.parameters_are_tupled) {
    return Unimplemented("expected a module with one parameter per argument, got one whose only parameter is a tuple");
  }
  PW_ASSIGN_OR_RETURN(const std::string_view computation, EntryComputation(module));
  PW_ASSIGN_OR_RETURN(const NumberedEntry entry, NumberedEntry::Read(computation, openness));
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= entry.places().size() || (i > 0 && positions[i] <= positions[i - 1])) {
      return InvalidArgument("expected ascending positions among the " + std::to_string(entry.places().size()) +
                             " numbers of the module, got " + std::to_string(positions[i]));
    }
  }
  Opener opener(entry, positions, static_cast<int64_t>(info.parameters.size()));
  PW_ASSIGN_OR_RETURN(const std::string edited,
                      EditComputations(module, [&](std::string_view each, bool is_entry) -> Result<std::string> {
                        if (!is_entry) return std::string(each);
                        return opener.Open(each);
                      }));
  ProtoWriter out;
  ProtoReader reader(edited);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(module_field::kHostProgramShape, WireType::kBytes)) {
      out.Bytes(field.number, opener.Widen(field.bytes));
    } else {
      out.Raw(field.raw);
    }
  }
  if (!reader.ok()) return MalformedModule("fields");
  return std::move(out).Take();
}

}  // namespace pathways::hlo
