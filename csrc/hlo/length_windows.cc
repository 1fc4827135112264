#include "csrc/hlo/length_windows.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/reduction_identity.h"

namespace pathways::hlo {
namespace {

struct SpanDimension {  // WindowDimension of xla_data.proto; its field numbers ascend from 1
  int64_t size = 0, stride = 0, low = 0, high = 0, window_dilation = 0, base_dilation = 0, reversal = 0;

  bool plain() const { return stride <= 1 && window_dilation <= 1 && base_dilation <= 1 && reversal == 0; }
};

Result<std::vector<SpanDimension>> ReadSpans(std::string_view instruction) {
  PW_ASSIGN_OR_RETURN(const auto windows, SubMessages(instruction, instruction_field::kWindow));
  std::vector<SpanDimension> out;
  if (windows.size() != 1) return MalformedModule("a window");
  PW_ASSIGN_OR_RETURN(const auto dimensions, SubMessages(windows[0], 1));
  for (const std::string_view bytes : dimensions) {
    SpanDimension& each = out.emplace_back();
    uint32_t number = 0;
    for (int64_t* to : {&each.size, &each.stride, &each.low, &each.high, &each.window_dilation, &each.base_dilation,
                        &each.reversal}) {
      PW_ASSIGN_OR_RETURN(*to, ReadId(bytes, ++number));
    }
  }
  return out;
}

}  // namespace

Status AddGrowingPad(const GrowingInstruction& now, LengthWriter* writer) {
  constexpr uint32_t kLow = 1, kHigh = 2, kInterior = 3;  // PaddingConfigDimension
  const auto dimensions_of = [](std::string_view instruction) -> Result<std::vector<std::string_view>> {
    PW_ASSIGN_OR_RETURN(const auto configs, SubMessages(instruction, instruction_field::kPaddingConfig));
    if (configs.size() != 1) return MalformedModule("a pad");
    return SubMessages(configs[0], 1);
  };
  PW_ASSIGN_OR_RETURN(const auto shorter, dimensions_of(now.shorter));
  PW_ASSIGN_OR_RETURN(const auto longer, dimensions_of(now.longer));
  const size_t rank = now.shape.rank();
  if (now.inputs.size() != 2 || longer.size() != rank || shorter.size() != rank ||
      now.inputs[0]->shape.rank() != rank || !now.inputs[1]->shape.IsScalar()) {
    return now.Refuse();
  }
  const GrowingShape& part = now.inputs[0]->shape;
  std::vector<int64_t> operands = now.operands;
  ProtoWriter config, fields;
  for (size_t i = 0; i < rank; ++i) {
    if (!part.offsets[i] && !now.shape.offsets[i]) {
      config.Bytes(1, longer[i]);
      continue;
    }
    PW_ASSIGN_OR_RETURN(const int64_t low, ReadId(longer[i], kLow));
    PW_ASSIGN_OR_RETURN(const int64_t short_low, ReadId(shorter[i], kLow));
    PW_ASSIGN_OR_RETURN(const int64_t interior, ReadId(longer[i], kInterior));
    if (low != short_low || interior != 0) return now.Refuse("before its beginning, or within");
    if (part.offsets[i]) operands[0] = writer->Masked(part, operands[0], i, operands[1]);
    ProtoWriter dimension;
    dimension.Int64(kLow, low);
    dimension.Int64(kHigh, now.shape.dims[i] - part.dims[i] - low);
    config.Bytes(1, dimension.bytes());
  }
  fields.Bytes(instruction_field::kPaddingConfig, config.bytes());
  return writer->Write(now.longer, now.shape, operands, instruction_field::kPaddingConfig, fields.bytes());
}

Status AddGrowingWindow(const GrowingInstruction& now, std::string_view computation, LengthWriter* writer) {
  PW_ASSIGN_OR_RETURN(const auto shorter, ReadSpans(now.shorter));
  PW_ASSIGN_OR_RETURN(auto longer, ReadSpans(now.longer));
  const size_t rank = now.shape.rank();
  if (now.inputs.size() != 2 || now.inputs[0]->shape.offsets.size() != rank || longer.size() != rank ||
      shorter.size() != rank) {
    return now.Refuse();
  }
  const GrowingShape& input = now.inputs[0]->shape;
  std::vector<int64_t> operands = now.operands;
  ProtoWriter window, fields;
  for (size_t i = 0; i < rank; ++i) {
    SpanDimension& each = longer[i];
    const bool grows = each.size != shorter[i].size;
    if (input.offsets[i] != now.shape.offsets[i]) return now.Refuse();
    if (!input.offsets[i]) {
      if (grows || each.low != shorter[i].low || each.high != shorter[i].high) return now.Refuse();
    } else if (!grows) {
      if (each.size != 1 || each.low != 0 || each.high != 0 || !each.plain()) return now.Refuse("with a window");
    } else {
      // As many elements as there are: all up to one, or all from one on.
      const auto spans = [&](const SpanDimension& of, int64_t length) {
        return of.plain() && of.size == length + *input.offsets[i] && of.low + of.high == of.size - 1 &&
               (of.low == 0 || of.high == 0);
      };
      const bool from_here = each.low == 0 && each.high != 0;
      if (!spans(each, now.shorter_length + 1) || !spans(shorter[i], now.shorter_length) ||
          (shorter[i].low == 0 && shorter[i].high != 0) != from_here) {
        return now.Refuse("with a window");
      }
      if (from_here) {
        PW_ASSIGN_OR_RETURN(const auto identity, IdentityOf(computation, input.dtype));
        if (!identity || !LiteralOf(input.dtype, *identity)) return now.Refuse("by a computation of its own");
        operands[0] = writer->Masked(input, operands[0], i, writer->Constant(input.dtype, *identity));
      }
      each.size = input.dims[i];
      (from_here ? each.high : each.low) = each.size - 1;
    }
    ProtoWriter dimension;
    uint32_t number = 0;
    for (const int64_t value :
         {each.size, each.stride, each.low, each.high, each.window_dilation, each.base_dilation, each.reversal}) {
      ++number;
      if (value != 0) dimension.Int64(number, value);
    }
    window.Bytes(1, dimension.bytes());
  }
  fields.Bytes(instruction_field::kWindow, window.bytes());
  return writer->Write(now.longer, now.shape, operands, instruction_field::kWindow, fields.bytes());
}

Status AddGrowingNormalization(const GrowingInstruction& now, LengthWriter* writer) {
  constexpr uint32_t kFeatureIndex = 25;  // HloInstructionProto
  PW_ASSIGN_OR_RETURN(const int64_t index, ReadId(now.longer, kFeatureIndex));
  const auto feature = static_cast<size_t>(index);
  if (now.inputs.empty() || feature >= now.inputs[0]->shape.rank()) return now.Refuse();
  const GrowingShape& input = now.inputs[0]->shape;
  for (size_t i = 0; i < input.rank(); ++i) {
    if (input.offsets[i] && i != feature) return now.Refuse("over which it goes");
  }
  const std::vector<std::optional<int64_t>> features{input.offsets[feature]};
  for (size_t i = 1; i < now.inputs.size(); ++i) {
    if (now.inputs[i]->shape.offsets != features) return now.Refuse();
  }
  if (now.shape.is_tuple && now.shape.elements.empty()) return now.Refuse();
  if ((now.shape.is_tuple ? now.shape.elements[0] : now.shape).offsets != input.offsets) return now.Refuse();
  for (size_t i = 1; i < now.shape.elements.size(); ++i) {
    if (now.shape.elements[i].offsets != features) return now.Refuse();
  }
  return writer->Write(now.longer, now.shape);
}

}  // namespace pathways::hlo
