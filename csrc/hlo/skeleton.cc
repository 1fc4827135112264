#include "csrc/hlo/skeleton.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

constexpr uint32_t kModuleEntryName = 2, kModuleId = 5, kComputationName = 1;

// Numbers for ids, in the order in which they are met.
class Renumbering {
 public:
  int64_t Of(int64_t id) { return new_.try_emplace(id, static_cast<int64_t>(new_.size())).first->second; }

 private:
  std::map<int64_t, int64_t> new_;
};

// A ShapeProto whose dimensions, and those of its elements, are left out and added to `sizes`.
Result<std::string> WithoutSizes(std::string_view shape, std::vector<int64_t>* sizes, int depth = 0) {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) return MalformedModule("a shape");
  ProtoWriter out;
  ProtoReader reader(shape);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.number == shape_field::kDimensions) {
      ok = ok && ForEachInt64(field, [&](int64_t size) {
             sizes->push_back(size);
             out.Int64(field.number, 0);
           });
    } else if (field.is(shape_field::kTupleShapes, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const std::string element, WithoutSizes(field.bytes, sizes, depth + 1));
      out.Bytes(field.number, element);
    } else {
      out.Raw(field.raw);
    }
  }
  if (!reader.ok() || !ok) return MalformedModule("a shape");
  return std::move(out).Take();
}

class SkeletonWriter {
 public:
  SkeletonWriter(const OpenNumbers& open, bool without_sizes) : open_(open), without_sizes_(without_sizes) {}

  std::vector<int64_t> TakeSizes() {
    program_sizes_.insert(program_sizes_.end(), entry_sizes_.begin(), entry_sizes_.end());
    return std::move(program_sizes_);
  }

  Result<std::string> Write(std::string_view module) {
    PW_ASSIGN_OR_RETURN(const int64_t entry_id, ReadId(module, module_field::kEntryId));
    ProtoReader reader(module);
    ProtoField field;
    while (reader.Next(&field)) {
      switch (field.number) {
        case module_field::kName:
        case kModuleEntryName:
        case kModuleId:
        case module_field::kStackFrameIndex:
          break;
        case module_field::kEntryId:
          out_.Int64(field.number, computations_.Of(field.as_int64()));
          break;
        case module_field::kHostProgramShape:
          PW_RETURN_IF_ERROR(
              WriteProgramShape(field.bytes, field.number, without_sizes_ ? &program_sizes_ : nullptr, &out_));
          break;
        case module_field::kComputations: {
          PW_ASSIGN_OR_RETURN(const int64_t id, ReadId(field.bytes, computation_field::kId));
          PW_RETURN_IF_ERROR(WriteComputation(field.bytes, id == entry_id));
          break;
        }
        default:
          out_.Raw(field.raw);
      }
    }
    if (!reader.ok()) return MalformedModule("fields");
    return std::move(out_).Take();
  }

 private:
  // `sizes`: where they go, or null where they stay.
  static Status WriteProgramShape(std::string_view shape, uint32_t number, std::vector<int64_t>* sizes,
                                  ProtoWriter* out) {
    ProtoWriter plain;
    ProtoReader reader(shape);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.number == program_shape_field::kParameterNames) continue;
      if (sizes == nullptr || field.type != WireType::kBytes) {
        plain.Raw(field.raw);
        continue;
      }
      PW_ASSIGN_OR_RETURN(const std::string each, WithoutSizes(field.bytes, sizes));
      plain.Bytes(field.number, each);
    }
    if (!reader.ok()) return MalformedModule("a shape");
    out->Bytes(number, plain.bytes());
    return OkStatus();
  }

  Status WriteComputation(std::string_view computation, bool is_entry) {
    ProtoWriter out;
    ProtoReader reader(computation);
    ProtoField field;
    size_t at = 0;
    std::vector<int64_t>* const sizes = is_entry && without_sizes_ ? &entry_sizes_ : nullptr;
    while (reader.Next(&field)) {
      switch (field.number) {
        case computation_field::kInstructions: {
          static const std::vector<int> kNone;
          const auto found = is_entry ? open_.find(at) : open_.end();
          PW_RETURN_IF_ERROR(WriteOne(field.bytes, found == open_.end() ? kNone : found->second, sizes, &out));
          ++at;
          break;
        }
        case computation_field::kId:
          out.Int64(field.number, computations_.Of(field.as_int64()));
          break;
        case computation_field::kRootId:
          out.Int64(field.number, instructions_.Of(field.as_int64()));
          break;
        case computation_field::kProgramShape:
          PW_RETURN_IF_ERROR(WriteProgramShape(field.bytes, field.number, sizes, &out));
          break;
        case kComputationName:
          break;
        default:
          out.Raw(field.raw);
      }
    }
    if (!reader.ok()) return MalformedModule("a computation");
    out_.Bytes(module_field::kComputations, out.bytes());
    return OkStatus();
  }

  Status WriteOne(std::string_view bytes, const std::vector<int>& open, std::vector<int64_t>* sizes,
                  ProtoWriter* computation) {
    ProtoWriter out;
    ProtoReader reader(bytes);
    ProtoField field;
    int dimension = 0;
    while (reader.Next(&field)) {
      switch (field.number) {
        case instruction_field::kName:
        case instruction_field::kMetadata:
          break;
        case instruction_field::kId:
          out.Int64(field.number, instructions_.Of(field.as_int64()));
          break;
        case instruction_field::kOperandIds:
        case instruction_field::kControlPredecessors:
          if (!ForEachInt64(field, [&](int64_t id) { out.Int64(field.number, instructions_.Of(id)); })) {
            return MalformedModule("operands");
          }
          break;
        case instruction_field::kCalledComputationIds:
          if (!ForEachInt64(field, [&](int64_t id) { out.Int64(field.number, computations_.Of(id)); })) {
            return MalformedModule("called computations");
          }
          break;
        case instruction_field::kLiteral:
          if (!open.empty() || (sizes != nullptr && WriteProgression(bytes, field.bytes, &out))) break;
          out.Raw(field.raw);
          break;
        case instruction_field::kPaddingConfig:
          if (open.empty()) out.Raw(field.raw);
          break;
        case instruction_field::kWindow:
          PW_RETURN_IF_ERROR(WriteWindow(bytes, field, sizes, &out));
          break;
        case instruction_field::kSliceDimensions:
          if (std::find(open.begin(), open.end(), dimension++) != open.end()) break;
          PW_RETURN_IF_ERROR(WriteRange(field, sizes, &out));
          break;
        case instruction_field::kShape: {
          if (sizes == nullptr) {
            out.Raw(field.raw);
            break;
          }
          PW_ASSIGN_OR_RETURN(const std::string shape, WithoutSizes(field.bytes, sizes));
          out.Bytes(field.number, shape);
          break;
        }
        case instruction_field::kDynamicSliceSizes:
        case instruction_field::kGatherSliceSizes:
          if (sizes == nullptr) {
            out.Raw(field.raw);
          } else if (!ForEachInt64(field, [sizes](int64_t size) { sizes->push_back(size); })) {
            return MalformedModule("sizes of a slice");
          }
          break;
        default:
          out.Raw(field.raw);
      }
    }
    if (!reader.ok()) return MalformedModule("an instruction");
    for (const int place : open) out.Int64(kOpen, place + 1);
    computation->Bytes(computation_field::kInstructions, out.bytes());
    return OkStatus();
  }

  // Of a slice's dimension.
  static Status WriteRange(const ProtoField& field, std::vector<int64_t>* sizes, ProtoWriter* out) {
    constexpr uint32_t kLimit = 2;
    if (sizes == nullptr) {
      out->Raw(field.raw);
      return OkStatus();
    }
    ProtoWriter range;
    PW_ASSIGN_OR_RETURN(const int64_t limit, ReadId(field.bytes, kLimit));
    if (!CopyFieldsExcept(field.bytes, {kLimit}, &range)) return MalformedModule("a slice");
    sizes->push_back(limit);
    out->Bytes(field.number, range.bytes());
    return OkStatus();
  }

  // Whether a literal of one dimension is a progression, and has been written as such.
  static bool WriteProgression(std::string_view instruction, std::string_view literal, ProtoWriter* out) {
    const Result<Instruction> read = ReadInstruction(instruction);
    const Result<Shape> shape = read.ok() ? ReadShape(read->shape) : read.status();
    if (!shape.ok() || shape->dims.size() != 1) return false;
    const auto progression = ProgressionOf(literal, DTypeFromXlaPrimitive(shape->element_type));
    if (!progression) return false;
    out->Int64(kProgression, progression->first);
    out->Int64(kProgression, progression->step);
    return true;
  }

  // That of a windowed reduction: cumulative sums have one as long as their array.
  static Status WriteWindow(std::string_view instruction, const ProtoField& field, std::vector<int64_t>* sizes,
                            ProtoWriter* out) {
    constexpr uint32_t kDimensions = 1, kSize = 1, kLow = 3, kHigh = 4;  // Window, WindowDimension
    PW_ASSIGN_OR_RETURN(const Instruction read, ReadInstruction(instruction));
    if (sizes == nullptr || read.opcode != "reduce-window") {
      out->Raw(field.raw);
      return OkStatus();
    }
    ProtoWriter window;
    PW_ASSIGN_OR_RETURN(const auto dimensions, SubMessages(field.bytes, kDimensions));
    for (const std::string_view dimension : dimensions) {
      for (const uint32_t number : {kSize, kLow, kHigh}) {
        PW_ASSIGN_OR_RETURN(const int64_t size, ReadId(dimension, number));
        sizes->push_back(size);
      }
      ProtoWriter rest;
      if (!CopyFieldsExcept(dimension, {kSize, kLow, kHigh}, &rest)) return MalformedModule("a window");
      window.Bytes(kDimensions, rest.bytes());
    }
    out->Bytes(field.number, window.bytes());
    return OkStatus();
  }

  // These mark a place, and a literal; no fields of an instruction have the numbers.
  static constexpr uint32_t kOpen = 1000, kProgression = 1001;

  const OpenNumbers& open_;
  const bool without_sizes_;
  std::vector<int64_t> program_sizes_, entry_sizes_;
  ProtoWriter out_;
  Renumbering computations_, instructions_;
};

}  // namespace

Result<std::string> Skeleton(std::string_view module, const OpenNumbers& open, std::vector<int64_t>* sizes) {
  SkeletonWriter writer(open, sizes != nullptr);
  PW_ASSIGN_OR_RETURN(std::string skeleton, writer.Write(module));
  if (sizes != nullptr) *sizes = writer.TakeSizes();
  return skeleton;
}

}  // namespace pathways::hlo
