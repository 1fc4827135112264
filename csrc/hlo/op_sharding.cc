#include "csrc/hlo/op_sharding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// Field numbers and values of OpSharding.
constexpr uint32_t kType = 1, kTileDims = 3, kTileDevices = 4, kTuple = 5, kReplicateLast = 6, kLastTileDims = 8,
                   kIotaDims = 9, kIotaPermutation = 10;
constexpr int64_t kReplicated = 0, kTupleType = 2, kOther = 3;
constexpr int64_t kMaxTiles = int64_t{1} << 24;

int64_t Product(const std::vector<int64_t>& values) {
  int64_t product = 1;
  for (const int64_t value : values) {
    if (value < 1 || value > kMaxTiles || (product *= value) > kMaxTiles) return -1;
  }
  return product;
}

struct Fields {
  int64_t type = kReplicated;
  std::vector<int64_t> dims, devices, last, iota, permutation;
  bool replicate_last = false;
  std::vector<std::string_view> elements;
};

Result<Fields> Read(std::string_view bytes) {
  Fields out;
  ProtoReader reader(bytes);
  ProtoField field;
  bool whole = true;
  const auto append = [&](std::vector<int64_t>& to) {
    whole = ForEachInt64(field, [&to](int64_t value) { to.push_back(value); }) && whole;
  };
  while (reader.Next(&field)) {
    if (field.is(kType, WireType::kVarint)) out.type = field.as_int64();
    if (field.is(kReplicateLast, WireType::kVarint)) out.replicate_last = field.as_bool();
    if (field.is(kTuple, WireType::kBytes)) out.elements.push_back(field.bytes);
    if (field.number == kTileDims) append(out.dims);
    if (field.number == kTileDevices) append(out.devices);
    if (field.number == kLastTileDims) append(out.last);
    if (field.number == kIotaDims) append(out.iota);
    if (field.number == kIotaPermutation) append(out.permutation);
  }
  if (!reader.ok() || !whole) return MalformedModule("a sharding");
  return out;
}

// The devices in the order of the tiles: an iota that was reshaped, transposed and flattened.
Result<std::vector<int64_t>> Expand(const Fields& fields, int64_t count) {
  if (fields.iota.empty()) return fields.devices;
  const size_t rank = fields.iota.size();
  std::vector<bool> seen(rank, false);
  for (const int64_t axis : fields.permutation) {
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || seen[static_cast<size_t>(axis)]) {
      return MalformedModule("a sharding's permutation");
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  if (fields.permutation.size() != rank || Product(fields.iota) != count) return MalformedModule("a sharding's iota");
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank - 1; i-- > 0;) strides[i] = strides[i + 1] * fields.iota[i + 1];
  std::vector<int64_t> devices;
  std::vector<int64_t> index(rank, 0);  // in the transposed grid
  for (int64_t n = 0; n < count; ++n) {
    int64_t device = 0;
    for (size_t i = 0; i < rank; ++i) device += index[i] * strides[static_cast<size_t>(fields.permutation[i])];
    devices.push_back(device);
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < fields.iota[static_cast<size_t>(fields.permutation[i])]) break;
      index[i] = 0;
    }
  }
  return devices;
}

}  // namespace

std::string EncodeOpSharding(const Tiling& tiling) {
  if (tiling.is_replicated()) return {};
  const auto devices = static_cast<int64_t>(tiling.device_count());
  const int64_t tiles = tiling.tile_count();
  const int64_t copies = devices / tiles;
  ProtoWriter out;
  out.Int64(kType, kOther);
  for (const int64_t parts : tiling.parts()) out.Int64(kTileDims, parts);
  if (copies > 1) out.Int64(kTileDims, copies);
  std::vector<int64_t> order(static_cast<size_t>(devices));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tiling.tiles()[static_cast<size_t>(a)] < tiling.tiles()[static_cast<size_t>(b)];
  });
  for (const int64_t device : order) out.Int64(kTileDevices, device);
  if (copies > 1) out.Bool(kReplicateLast, true);
  return std::move(out).Take();
}

Result<Tiling> DecodeOpSharding(std::string_view bytes, size_t rank, size_t partitions) {
  PW_ASSIGN_OR_RETURN(const Fields fields, Read(bytes));
  if (fields.type == kReplicated) return Tiling::Replicated(rank, partitions);
  const bool only_copies =
      std::all_of(fields.last.begin(), fields.last.end(), [](int64_t type) { return type == kReplicated; });
  if (fields.type != kOther || !only_copies) {
    return Unimplemented("expected a sharding that divides an array or copies it, got one of type " +
                         std::to_string(fields.type));
  }
  const int64_t count = Product(fields.dims);
  if (count != static_cast<int64_t>(partitions) || fields.dims.size() < rank ||
      (fields.dims.size() > rank && !fields.replicate_last && fields.last.empty())) {
    return MalformedModule("a sharding for " + std::to_string(partitions) + " partitions");
  }
  PW_ASSIGN_OR_RETURN(const std::vector<int64_t> devices, Expand(fields, count));
  if (devices.size() != partitions) return MalformedModule("a sharding with all its devices");
  std::vector<int64_t> parts(fields.dims.begin(), fields.dims.begin() + static_cast<std::ptrdiff_t>(rank));
  const int64_t copies = count / Product(parts);
  std::vector<uint32_t> tiles(partitions, 0);
  for (size_t n = 0; n < devices.size(); ++n) {
    if (devices[n] < 0 || devices[n] >= count) return MalformedModule("a sharding's devices");
    tiles[static_cast<size_t>(devices[n])] = static_cast<uint32_t>(static_cast<int64_t>(n) / copies);
  }
  return Tiling::Make(std::move(parts), std::move(tiles));
}

Result<std::vector<Tiling>> DecodeOpShardings(std::string_view bytes, const std::vector<size_t>& ranks,
                                              size_t partitions) {
  PW_ASSIGN_OR_RETURN(const Fields fields, Read(bytes));
  std::vector<Tiling> tilings;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool has_own = fields.type == kTupleType && i < fields.elements.size();
    const std::string_view element = has_own ? fields.elements[i] : fields.type == kTupleType ? "" : bytes;
    PW_ASSIGN_OR_RETURN(Tiling tiling, DecodeOpSharding(element, ranks[i], partitions));
    tilings.push_back(std::move(tiling));
  }
  return tilings;
}

}  // namespace pathways::hlo
