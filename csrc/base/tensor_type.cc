#include "csrc/base/tensor_type.h"

namespace pathways {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  int64_t xla;  // xla_data.proto PrimitiveType
};

constexpr DTypeRow kRows[] = {
    {DType::kPred, "pred", 1, 1},
    {DType::kS8, "s8", 1, 2},
    {DType::kS16, "s16", 2, 3},
    {DType::kS32, "s32", 4, 4},
    {DType::kS64, "s64", 8, 5},
    {DType::kU8, "u8", 1, 6},
    {DType::kU16, "u16", 2, 7},
    {DType::kU32, "u32", 4, 8},
    {DType::kU64, "u64", 8, 9},
    {DType::kF16, "f16", 2, 10},
    {DType::kF32, "f32", 4, 11},
    {DType::kF64, "f64", 8, 12},
    {DType::kC64, "c64", 8, 15},
    {DType::kBF16, "bf16", 2, 16},
    {DType::kC128, "c128", 16, 18},
    {DType::kF8E5M2, "f8e5m2", 1, 19},
    {DType::kF8E4M3FN, "f8e4m3fn", 1, 20},
    {DType::kF8E4M3B11FNUZ, "f8e4m3b11fnuz", 1, 23},
    {DType::kF8E5M2FNUZ, "f8e5m2fnuz", 1, 24},
    {DType::kF8E4M3FNUZ, "f8e4m3fnuz", 1, 25},
};

const DTypeRow* Find(DType dtype) {
  for (const DTypeRow& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

constexpr int64_t kMaxBytes = int64_t{1} << 47;

}  // namespace

int64_t DTypeBytes(DType dtype) {
  const DTypeRow* row = Find(dtype);
  return row ? row->bytes : 0;
}

std::string_view DTypeName(DType dtype) {
  const DTypeRow* row = Find(dtype);
  return row ? row->name : "invalid";
}

DType DTypeFromXlaPrimitive(int64_t primitive_type) {
  for (const DTypeRow& row : kRows) {
    if (row.xla == primitive_type) return row.dtype;
  }
  return DType::kInvalid;
}

int64_t XlaPrimitiveFromDType(DType dtype) {
  const DTypeRow* row = Find(dtype);
  return row ? row->xla : 0;
}

int64_t TensorType::ElementCount() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

std::string TensorType::ToString() const {
  std::string text(DTypeName(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ',';
    text += std::to_string(dims[i]);
  }
  return text + ']';
}

Status TensorType::Validate() const {
  const int64_t element_bytes = DTypeBytes(dtype);
  if (element_bytes == 0) {
    return InvalidArgument("expected an element type this system carries, got number " +
                           std::to_string(static_cast<int>(dtype)));
  }
  int64_t bytes = element_bytes;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) return InvalidArgument("expected dimensions >= 0, got " + ToString());
    if (dim == 0) empty = true;
  }
  if (empty) return OkStatus();
  for (int64_t dim : dims) {
    if (bytes > kMaxBytes / dim) return InvalidArgument("expected a tensor below 2^47 bytes, got " + ToString());
    bytes *= dim;
  }
  return OkStatus();
}

}  // namespace pathways
