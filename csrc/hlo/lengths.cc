#include "csrc/hlo/lengths.h"

#include <algorithm>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/hlo/growing_shape.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/length_entry.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// What of a tensor grows, and the tensor at the bound.
struct BoundedTensor {
  TensorType type;
  std::vector<GrowingDimension> growing;
};

BoundedTensor AtLengthBound(const TensorType& shorter, const TensorType& longer, const LengthBound& bound) {
  BoundedTensor out{shorter, {}};
  for (size_t i = 0; i < shorter.dims.size(); ++i) {
    if (shorter.dims[i] == longer.dims[i]) continue;
    out.growing.push_back({i, shorter.dims[i] - bound.shorter});
    out.type.dims[i] = bound.bound;
  }
  return out;
}

// The first growing dimension of a parameter.
std::optional<int64_t> LengthOfShorter(const HloModuleInfo& shorter, const HloModuleInfo& longer) {
  for (size_t i = 0; i < shorter.parameters.size(); ++i) {
    const std::vector<int64_t>&a = shorter.parameters[i].dims, &b = longer.parameters[i].dims;
    const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (differ.first != a.end()) return *differ.first;
  }
  return std::nullopt;
}

Status CheckPair(const ModuleSizes& shorter, const ModuleSizes& longer) {
  if (shorter.skeleton != longer.skeleton || shorter.sizes.size() != longer.sizes.size() ||
      shorter.numbers.size() != longer.numbers.size()) {
    return Unimplemented("expected two modules that differ in sizes and numbers only, got others");
  }
  for (size_t i = 0; i < shorter.sizes.size(); ++i) {
    const int64_t a = shorter.sizes[i], b = longer.sizes[i];
    if (a != b && (b <= 0 || a != b - 1)) {
      return Unimplemented("expected sizes that are equal or grow by one, got " + std::to_string(a) + " and " +
                           std::to_string(b));
    }
  }
  return OkStatus();
}

// The HloInputOutputAliasProto without the entries of what grows: others may read it, and further than its length.
Result<std::string> KeepAliases(std::string_view aliases, const LengthModule& module) {
  constexpr uint32_t kEntries = 1, kOutputIndex = 1, kParameterNumber = 2;
  ProtoWriter out;
  PW_ASSIGN_OR_RETURN(const auto entries, SubMessages(aliases, kEntries));
  for (const std::string_view entry : entries) {
    PW_ASSIGN_OR_RETURN(const auto index, Integers(entry, kOutputIndex));
    PW_ASSIGN_OR_RETURN(const int64_t number, ReadId(entry, kParameterNumber));
    const auto parameter = static_cast<size_t>(number);
    const size_t result = index.empty() ? 0 : static_cast<size_t>(index[0]);
    if (index.size() > 1 || parameter >= module.parameters.size() || result >= module.results.size()) {
      return MalformedModule("aliases");
    }
    if (module.growing_parameters[parameter].empty() && module.growing_results[result].empty()) {
      out.Bytes(kEntries, entry);
    }
  }
  return std::move(out).Take();
}

// The positions at which the numbers of the two differ, and those of `open`.
std::vector<size_t> AllOpen(const ModuleSizes& shorter, const ModuleSizes& longer, std::span<const size_t> open) {
  std::vector<size_t> out(open.begin(), open.end());
  for (size_t i = 0; i < shorter.numbers.size(); ++i) {
    if (shorter.numbers[i] != longer.numbers[i]) out.push_back(i);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Result<ModuleSizes> ReadSizes(std::string_view module) {
  ModuleSizes out;
  PW_ASSIGN_OR_RETURN(ModuleNumbers read, ReadNumbersAndSizes(module, &out.sizes));
  out.skeleton = std::move(read.skeleton);
  out.numbers = std::move(read.numbers);
  return out;
}

Result<LengthModule> WithLengthAsParameter(std::string_view shorter, std::string_view longer, int64_t bound,
                                           std::span<const size_t> open) {
  PW_ASSIGN_OR_RETURN(const ModuleSizes short_sizes, ReadSizes(shorter));
  PW_ASSIGN_OR_RETURN(const ModuleSizes long_sizes, ReadSizes(longer));
  PW_RETURN_IF_ERROR(CheckPair(short_sizes, long_sizes));
  PW_ASSIGN_OR_RETURN(const HloModuleInfo short_info, ReadHloModule(shorter));
  PW_ASSIGN_OR_RETURN(const HloModuleInfo long_info, ReadHloModule(longer));
  if (short_info.parameters.size() != long_info.parameters.size() ||
      short_info.results.size() != long_info.results.size()) {
    return MalformedModule("two modules of as many parameters and results");
  }
  const std::optional<int64_t> length = LengthOfShorter(short_info, long_info);
  if (!length) return Unimplemented("expected a parameter that grows, got none");
  if (bound < 1 || bound > INT32_MAX) {
    return InvalidArgument("expected a bound from 1 to 2147483647, got " + std::to_string(bound));
  }
  const LengthBound frame{*length, bound};
  LengthModule out;
  out.longest = bound;
  // Some of these offsets are of limits of slices, not of sizes: larger at most.
  for (size_t i = 0; i < short_sizes.sizes.size(); ++i) {
    if (short_sizes.sizes[i] == long_sizes.sizes[i]) continue;
    out.longest = std::min(out.longest, bound - (short_sizes.sizes[i] - *length));
  }
  if (out.longest < 1) {
    return InvalidArgument("expected a bound for all sizes at length 1, got " + std::to_string(bound));
  }
  out.open = AllOpen(short_sizes, long_sizes, open);
  for (size_t i = 0; i < short_info.parameters.size(); ++i) {
    BoundedTensor each = AtLengthBound(short_info.parameters[i], long_info.parameters[i], frame);
    PW_RETURN_IF_ERROR(each.type.Validate());
    out.parameters.push_back(std::move(each.type));
    out.growing_parameters.push_back(std::move(each.growing));
  }
  for (size_t i = 0; i < short_info.results.size(); ++i) {
    BoundedTensor each = AtLengthBound(short_info.results[i], long_info.results[i], frame);
    PW_RETURN_IF_ERROR(each.type.Validate());
    out.results.push_back(std::move(each.type));
    out.growing_results.push_back(std::move(each.growing));
  }

  // With their numbers open, the two differ in sizes only.
  PW_ASSIGN_OR_RETURN(const std::string short_open, WithNumbersAsParameters(shorter, out.open, Openness::kDivisorsToo));
  PW_ASSIGN_OR_RETURN(const std::string long_open, WithNumbersAsParameters(longer, out.open, Openness::kDivisorsToo));
  PW_ASSIGN_OR_RETURN(const std::string_view short_entry, EntryComputation(short_open));
  PW_ASSIGN_OR_RETURN(const auto short_shapes, SubMessages(short_open, module_field::kHostProgramShape));
  if (short_shapes.size() != 1) return MalformedModule("one program shape");
  ComputationsById computations;
  PW_ASSIGN_OR_RETURN(const auto all, SubMessages(long_open, module_field::kComputations));
  for (const std::string_view computation : all) {
    PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(computation, computation_field::kId));
    computations[id] = computation;
  }
  const auto parameter = static_cast<int64_t>(out.parameters.size() + out.open.size());
  PW_ASSIGN_OR_RETURN(const std::string edited,
                      EditComputations(long_open, [&](std::string_view each, bool is_entry) -> Result<std::string> {
                        if (!is_entry) return std::string(each);
                        return EntryWithLength(short_entry, each, computations, frame, parameter);
                      }));
  ProtoWriter module;
  ProtoReader reader(edited);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(module_field::kHostProgramShape, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const std::string shape, ProgramShapeWithLength(short_shapes[0], field.bytes, frame));
      module.Bytes(field.number, shape);
    } else if (field.is(module_field::kAlias, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const std::string aliases, KeepAliases(field.bytes, out));
      if (!aliases.empty()) module.Bytes(field.number, aliases);
    } else {
      module.Raw(field.raw);
    }
  }
  if (!reader.ok()) return MalformedModule("fields");
  out.module = std::move(module).Take();
  return out;
}

std::optional<int64_t> LengthOf(const ModuleSizes& shorter, const ModuleSizes& longer, const ModuleSizes& module) {
  if (module.skeleton != shorter.skeleton || module.sizes.size() != shorter.sizes.size() ||
      module.numbers.size() != shorter.numbers.size() || longer.sizes.size() != shorter.sizes.size()) {
    return std::nullopt;
  }
  // The program's parameters come first, and so does the size that is the length.
  std::optional<int64_t> length;
  int64_t more = 0;
  for (size_t i = 0; i < shorter.sizes.size(); ++i) {
    const bool grows = longer.sizes[i] != shorter.sizes[i];
    if (grows && !length) {
      length = module.sizes[i];
      if (*length < 1 || __builtin_sub_overflow(*length, shorter.sizes[i], &more)) return std::nullopt;
    }
    int64_t expected = 0;
    if (__builtin_add_overflow(shorter.sizes[i], grows ? more : 0, &expected) || module.sizes[i] != expected) {
      return std::nullopt;
    }
  }
  return length;
}

}  // namespace pathways::hlo
