#include "csrc/values/upload.h"

#include <span>
#include <utility>
#include <vector>

#include "csrc/values/client.h"
#include "csrc/values/host_layout.h"

namespace pathways::values {
namespace {

thread_local UploadLayout upload_layout;

// The tile of a dense, row-major tensor, padded to a whole shard with whatever stands there.
std::vector<char> TileOf(const TensorType& type, const Tiling& tiling, uint32_t tile, const void* dense) {
  const TensorType shard = tiling.ShardType(type);
  const Tiling::Box box = tiling.BoxOf(type, tile);
  std::vector<char> bytes(static_cast<size_t>(shard.ByteSize()));
  if (box.is_empty()) return bytes;
  const ByteStrides strides = RowMajorStrides(type);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) offset += box.start[i] * strides[i];
  CopyElements({type.dtype, box.size}, static_cast<const char*>(dense) + offset, strides, bytes.data(),
               RowMajorStrides(shard));
  return bytes;
}

}  // namespace

UploadLayout SetUploadLayout(UploadLayout layout) { return std::exchange(upload_layout, std::move(layout)); }

TilingPtr UploadTiling(const TensorType& type, size_t devices) {
  if (devices == 1) return nullptr;
  const size_t rank = type.dims.size();
  const TilingPtr& wanted = upload_layout.tiling;
  if (upload_layout.kind == UploadLayout::Kind::kTiling && wanted->rank() == rank &&
      wanted->device_count() == devices) {
    return wanted;
  }
  const bool divides = rank > 0 && type.dims[0] > 0 && type.dims[0] % static_cast<int64_t>(devices) == 0;
  const bool copy = upload_layout.kind == UploadLayout::Kind::kCopy || !divides;
  return Intern(copy ? Tiling::Replicated(rank, devices) : Tiling::FirstDimension(rank, devices));
}

Result<ValuePtr> UploadValue(const std::shared_ptr<ClientState>& client, PJRT_Device* device, const TensorType& type,
                             const void* dense, const TilingPtr& tiling) {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  ValuePtr value;
  if (tiling == nullptr) {
    PW_ASSIGN_OR_RETURN(client::Shard shard, client->session()->buffers().Put(devices->front(), type, dense));
    value = std::make_shared<Value>(client, device, std::move(shard));
  } else {
    if (tiling->device_count() != devices->size() || tiling->rank() != type.dims.size()) {
      return InvalidArgument("expected a tiling over " + std::to_string(devices->size()) + " devices for " +
                             type.ToString() + ", got " + tiling->ToString());
    }
    // Rows that lie together are sent from where they are.
    const std::span<const int64_t> parts = tiling->parts();
    const bool in_rows = tiling->Divides(type.dims) && (parts.empty() || tiling->tile_count() == parts[0]);
    const int64_t tile_bytes = tiling->ShardType(type).ByteSize();
    std::vector<std::vector<char>> tiles(in_rows ? 0 : static_cast<size_t>(tiling->tile_count()));
    for (uint32_t i = 0; i < tiles.size(); ++i) tiles[i] = TileOf(type, *tiling, i, dense);
    std::vector<const void*> data;
    for (const uint32_t tile : tiling->tiles()) {
      data.push_back(in_rows ? static_cast<const char*>(dense) + tile * tile_bytes : tiles[tile].data());
    }
    PW_ASSIGN_OR_RETURN(auto buffer, client->session()->buffers().PutSharded(*devices, tiling->ShardType(type), data));
    value = std::make_shared<Value>(client, device, std::make_shared<const ArrayType>(type), tiling, devices);
    value->Resolve(client::Shard{std::move(buffer), 0});
  }
  if (type.dims.empty()) value->KeepScalar(dense, static_cast<size_t>(type.ByteSize()));
  return value;
}

}  // namespace pathways::values
