#include "csrc/values/host_layout.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace pathways::values {
namespace {

// Copies a row of `count` elements of a fixed size.
template <size_t kBytes>
void CopyRow(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
}

void CopyRow(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t count, int64_t bytes) {
  if (from_stride == bytes && to_stride == bytes) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  switch (bytes) {
    case 1:
      return CopyRow<1>(from, from_stride, to, to_stride, count);
    case 2:
      return CopyRow<2>(from, from_stride, to, to_stride, count);
    case 4:
      return CopyRow<4>(from, from_stride, to, to_stride, count);
    case 8:
      return CopyRow<8>(from, from_stride, to, to_stride, count);
    default:
      return CopyRow<16>(from, from_stride, to, to_stride, count);  // c128, the widest there is
  }
}

}  // namespace

ByteStrides RowMajorStrides(const TensorType& type) {
  ByteStrides strides(type.dims.size());
  int64_t stride = DTypeBytes(type.dtype);
  for (size_t i = type.dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= type.dims[i];
  }
  return strides;
}

bool IsRowMajor(const TensorType& type, std::span<const int64_t> strides) {
  int64_t expected = DTypeBytes(type.dtype);
  for (size_t i = type.dims.size(); i-- > 0;) {
    if (type.dims[i] != 1 && strides[i] != expected) return false;
    expected *= type.dims[i];
  }
  return true;
}

Result<ByteStrides> StridesOf(const PJRT_Buffer_MemoryLayout* layout, const TensorType& type) {
  if (layout == nullptr) return RowMajorStrides(type);
  const size_t rank = type.dims.size();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    if (layout->strides.num_byte_strides != rank) {
      return InvalidArgument("expected a layout of " + std::to_string(rank) + " byte strides for " + type.ToString() +
                             ", got " + std::to_string(layout->strides.num_byte_strides));
    }
    return ByteStrides(layout->strides.byte_strides, layout->strides.byte_strides + rank);
  }
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) {
    return InvalidArgument("expected a tiled or strided layout, got kind " + std::to_string(layout->type));
  }
  const PJRT_Buffer_MemoryLayout_Tiled& tiled = layout->tiled;
  if (tiled.num_tiles != 0) {
    return Unimplemented("layouts with tiles are not carried; use a row-major or permuted layout for " +
                         type.ToString());
  }
  if (tiled.minor_to_major_size != rank) {
    return InvalidArgument("expected a layout that orders the " + std::to_string(rank) + " dimensions of " +
                           type.ToString() + ", got one of " + std::to_string(tiled.minor_to_major_size));
  }
  ByteStrides strides(rank, 0);
  int64_t stride = DTypeBytes(type.dtype);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t dim = tiled.minor_to_major[i];
    if (dim < 0 || dim >= static_cast<int64_t>(rank) || strides[static_cast<size_t>(dim)] != 0) {
      return InvalidArgument("minor_to_major of a layout must be a permutation of the dimensions");
    }
    strides[static_cast<size_t>(dim)] = stride;
    stride *= std::max<int64_t>(type.dims[static_cast<size_t>(dim)], 1);
  }
  return strides;
}

Status CheckDeviceLayout(const PJRT_Buffer_MemoryLayout* layout, const TensorType& type) {
  PW_ASSIGN_OR_RETURN(const ByteStrides strides, StridesOf(layout, type));
  if (type.ElementCount() == 0 || IsRowMajor(type, strides)) return OkStatus();
  return Unimplemented("arrays lie row-major on their devices; another layout was asked for " + type.ToString());
}

Result<TensorType> TypeFromC(PJRT_Buffer_Type type, const int64_t* dims, size_t num_dims) {
  if (num_dims > 0 && dims == nullptr) return InvalidArgument("the dimensions are null");
  TensorType out;
  const uint32_t number = static_cast<uint32_t>(type);
  if (number <= static_cast<uint32_t>(DType::kF8E4M3FNUZ)) out.dtype = static_cast<DType>(number);
  if (DTypeBytes(out.dtype) == 0) {
    return Unimplemented(
        "arrays of element type " + std::to_string(number) +
        " (PJRT_Buffer_Type) are not carried; 4-bit and smaller types need widening to s8 or u8 first");
  }
  out.dims.assign(dims, dims + num_dims);
  PW_RETURN_IF_ERROR(out.Validate());
  return out;
}

void CopyElements(const TensorType& type, const void* from, std::span<const int64_t> from_strides, void* to,
                  std::span<const int64_t> to_strides) {
  const int64_t bytes = DTypeBytes(type.dtype);
  const size_t rank = type.dims.size();
  if (type.ElementCount() == 0) return;
  if (rank == 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const char* source = static_cast<const char*>(from);
  char* target = static_cast<char*>(to);
  std::vector<int64_t> index(rank - 1, 0);
  for (;;) {
    CopyRow(source, from_strides[rank - 1], target, to_strides[rank - 1], type.dims[rank - 1], bytes);
    // The next row: count up the outer dimensions, the innermost of them fastest.
    size_t dim = rank - 1;
    for (;;) {
      if (dim == 0) return;
      --dim;
      source += from_strides[dim];
      target += to_strides[dim];
      if (++index[dim] < type.dims[dim]) break;
      source -= from_strides[dim] * type.dims[dim];
      target -= to_strides[dim] * type.dims[dim];
      index[dim] = 0;
    }
  }
}

}  // namespace pathways::values
