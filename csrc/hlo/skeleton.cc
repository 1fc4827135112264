#include "csrc/hlo/skeleton.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/base/proto.h"
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

class SkeletonWriter {
 public:
  explicit SkeletonWriter(const OpenNumbers& open) : open_(open) {}

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
          PW_RETURN_IF_ERROR(WriteProgramShape(field.bytes, field.number, &out_));
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
  static Status WriteProgramShape(std::string_view shape, uint32_t number, ProtoWriter* out) {
    ProtoWriter plain;
    if (!CopyFieldsExcept(shape, {program_shape_field::kParameterNames}, &plain)) return MalformedModule("a shape");
    out->Bytes(number, plain.bytes());
    return OkStatus();
  }

  Status WriteComputation(std::string_view computation, bool is_entry) {
    ProtoWriter out;
    ProtoReader reader(computation);
    ProtoField field;
    size_t at = 0;
    while (reader.Next(&field)) {
      switch (field.number) {
        case computation_field::kInstructions: {
          static const std::vector<int> kNone;
          const auto found = is_entry ? open_.find(at) : open_.end();
          PW_RETURN_IF_ERROR(WriteOne(field.bytes, found == open_.end() ? kNone : found->second, &out));
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
          PW_RETURN_IF_ERROR(WriteProgramShape(field.bytes, field.number, &out));
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

  Status WriteOne(std::string_view bytes, const std::vector<int>& open, ProtoWriter* computation) {
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
        case instruction_field::kPaddingConfig:
          if (open.empty()) out.Raw(field.raw);
          break;
        case instruction_field::kSliceDimensions:
          if (std::find(open.begin(), open.end(), dimension++) == open.end()) out.Raw(field.raw);
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

  static constexpr uint32_t kOpen = 1000;  // marks a place; no field of an instruction has the number

  const OpenNumbers& open_;
  ProtoWriter out_;
  Renumbering computations_, instructions_;
};

}  // namespace

Result<std::string> Skeleton(std::string_view module, const OpenNumbers& open) {
  return SkeletonWriter(open).Write(module);
}

}  // namespace pathways::hlo
