#include "csrc/sim/mlir_text.h"

#include <array>
#include <charconv>
#include <string>
#include <system_error>
#include <utility>

namespace pathways::sim {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 17> kElementTypes = {{
    {"i1", DType::kPred},
    {"i8", DType::kS8},
    {"i16", DType::kS16},
    {"i32", DType::kS32},
    {"i64", DType::kS64},
    {"ui8", DType::kU8},
    {"ui16", DType::kU16},
    {"ui32", DType::kU32},
    {"ui64", DType::kU64},
    {"f16", DType::kF16},
    {"bf16", DType::kBF16},
    {"f32", DType::kF32},
    {"f64", DType::kF64},
    {"f8E5M2", DType::kF8E5M2},
    {"f8E4M3FN", DType::kF8E4M3FN},
    {"complex<f32>", DType::kC64},
    {"complex<f64>", DType::kC128},
}};

constexpr std::array<std::string_view, 7> kCollectives = {
    "stablehlo.all_reduce",   "stablehlo.all_gather",         "stablehlo.reduce_scatter",      "stablehlo.all_to_all",
    "stablehlo.partition_id", "stablehlo.collective_permute", "stablehlo.collective_broadcast"};

// "4x8xf32"
Result<TensorType> ReadTensor(std::string_view text) {
  const std::string whole(text.substr(0, 80));
  TensorType type;
  text = text.substr(0, text.find(','));  // what follows is an encoding
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    const size_t end = text.find('x');
    int64_t dim = 0;
    const char* const stop = text.data() + (end == std::string_view::npos ? 0 : end);
    const auto [ptr, problem] = std::from_chars(text.data(), stop, dim);
    if (ptr != stop || problem != std::errc()) {
      return InvalidArgument("expected a tensor type with static dimensions, got tensor<" + whole + ">");
    }
    type.dims.push_back(dim);
    text.remove_prefix(end + 1);
  }
  for (const auto& [name, dtype] : kElementTypes) {
    if (text == name) type.dtype = dtype;
  }
  if (type.dtype == DType::kInvalid) {
    return InvalidArgument("expected a tensor type with static dimensions and a known element type, got tensor<" +
                           whole + ">");
  }
  PW_RETURN_IF_ERROR(type.Validate());
  return type;
}

// All tensor types in a piece of text.
Status ReadTensors(std::string_view text, std::vector<TensorType>* out) {
  constexpr std::string_view kOpen = "tensor<";
  for (size_t at = text.find(kOpen); at != std::string_view::npos; at = text.find(kOpen, at)) {
    const size_t begin = at + kOpen.size();
    size_t depth = 1, end = begin;
    while (end < text.size() && depth > 0) {
      depth += text[end] == '<';
      depth -= text[end] == '>';
      ++end;
    }
    if (depth > 0) return InvalidArgument("expected a closing > of a tensor type in a StableHLO module");
    PW_ASSIGN_OR_RETURN(TensorType type, ReadTensor(text.substr(begin, end - 1 - begin)));
    out->push_back(std::move(type));
    at = end;
  }
  return OkStatus();
}

// The text without what stands in quotes, which may hold any character.
std::string WithoutStrings(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      quoted = !quoted;
    } else if (quoted && text[i] == '\\') {
      ++i;
    } else if (!quoted) {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<MlirSignature> ReadMlirText(std::string_view module) {
  if (module.starts_with("ML\xefR")) {
    return Unimplemented("simulated devices read StableHLO as text and HLO as protos, got MLIR bytecode");
  }
  MlirSignature out;
  for (const std::string_view name : kCollectives) {
    out.collective = out.collective || module.find(name) != std::string_view::npos;
  }
  const std::string plain = WithoutStrings(module);
  const std::string_view text(plain);
  const size_t main = text.find("@main");
  const size_t open = main == std::string_view::npos ? main : text.find('(', main);
  if (open == std::string_view::npos) return InvalidArgument("expected a StableHLO module with a function @main");
  size_t depth = 0, close = open;
  for (; close < text.size(); ++close) {
    depth += text[close] == '(';
    depth -= text[close] == ')';
    if (depth == 0) break;
  }
  if (close == text.size()) return InvalidArgument("expected a closing ) after the parameters of @main");
  PW_RETURN_IF_ERROR(ReadTensors(text.substr(open, close - open), &out.parameters));
  // "-> tensor<..> {" or "-> (tensor<..> {attributes}, ..) {"
  std::string_view rest = text.substr(close + 1);
  const size_t arrow = rest.find_first_not_of(" \n\t");
  if (arrow == std::string_view::npos || !rest.substr(arrow).starts_with("->")) return out;
  rest.remove_prefix(arrow + 2);
  const size_t first = rest.find_first_not_of(" \n\t");
  if (first == std::string_view::npos) return InvalidArgument("expected types after -> of @main");
  rest.remove_prefix(first);
  size_t end = 0;
  if (rest[0] == '(') {
    depth = 0;
    for (; end < rest.size(); ++end) {
      depth += rest[end] == '(';
      depth -= rest[end] == ')';
      if (depth == 0) break;
    }
  } else {
    end = rest.find('{');
  }
  PW_RETURN_IF_ERROR(ReadTensors(rest.substr(0, end), &out.results));
  return out;
}

}  // namespace pathways::sim
