#include "csrc/base/tiling.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "csrc/base/thread_annotations.h"

namespace pathways {

Tiling Tiling::Replicated(size_t rank, size_t devices) {
  return Tiling(std::vector<int64_t>(rank, 1), std::vector<uint32_t>(devices, 0));
}

Tiling Tiling::FirstDimension(size_t rank, size_t devices) {
  std::vector<int64_t> parts(rank, 1);
  std::vector<uint32_t> tiles(devices, 0);
  if (rank > 0) {
    parts[0] = static_cast<int64_t>(devices);
    std::iota(tiles.begin(), tiles.end(), 0);
  }
  return Tiling(std::move(parts), std::move(tiles));
}

Result<Tiling> Tiling::Make(std::vector<int64_t> parts, std::vector<uint32_t> tiles) {
  const auto devices = static_cast<int64_t>(tiles.size());
  int64_t count = 1;
  for (const int64_t part : parts) {
    if (part < 1 || part > devices || (count *= part) > devices) {
      return InvalidArgument("expected a tiling with at most as many tiles as its " + std::to_string(devices) +
                             " devices and at least one part per dimension");
    }
  }
  std::vector<bool> held(static_cast<size_t>(count), false);
  for (const uint32_t tile : tiles) {
    if (tile >= held.size()) {
      return InvalidArgument("expected a tile below " + std::to_string(count) + ", got " + std::to_string(tile));
    }
    held[tile] = true;
  }
  if (tiles.empty() || std::find(held.begin(), held.end(), false) != held.end()) {
    return InvalidArgument("expected a device for each of the " + std::to_string(count) + " tiles of a tiling");
  }
  return Tiling(std::move(parts), std::move(tiles));
}

int64_t Tiling::tile_count() const {
  return std::accumulate(parts_.begin(), parts_.end(), int64_t{1}, std::multiplies<>());
}

bool Tiling::Divides(std::span<const int64_t> dims) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (dims[i] % parts_[i] != 0) return false;
  }
  return true;
}

TensorType Tiling::ShardType(const TensorType& whole) const {
  TensorType shard = whole;
  for (size_t i = 0; i < parts_.size(); ++i) shard.dims[i] = (whole.dims[i] + parts_[i] - 1) / parts_[i];
  return shard;
}

bool Tiling::Box::is_empty() const { return std::find(size.begin(), size.end(), 0) != size.end(); }

Tiling::Box Tiling::BoxOf(const TensorType& whole, uint32_t tile) const {
  Box box{std::vector<int64_t>(rank()), std::vector<int64_t>(rank())};
  const TensorType shard = ShardType(whole);
  int64_t rest = tile;
  for (size_t i = rank(); i-- > 0;) {
    const int64_t index = rest % parts_[i];
    rest /= parts_[i];
    box.start[i] = std::min(index * shard.dims[i], whole.dims[i]);
    box.size[i] = std::min(shard.dims[i], whole.dims[i] - box.start[i]);
  }
  return box;
}

std::vector<size_t> Tiling::Holders() const {
  std::vector<size_t> holders(static_cast<size_t>(tile_count()), tiles_.size());
  for (size_t device = tiles_.size(); device-- > 0;) holders[tiles_[device]] = device;
  return holders;
}

std::string Tiling::ToString() const {
  std::string text = "{";
  for (size_t i = 0; i < parts_.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(parts_[i]);
  return text + " of " + std::to_string(tiles_.size()) + "}";
}

TilingPtr Intern(Tiling tiling) {
  struct Table {
    std::mutex mutex;
    std::map<std::pair<std::vector<int64_t>, std::vector<uint32_t>>, std::weak_ptr<const Tiling>> known
        PW_GUARDED_BY(mutex);
  };
  static Table* const table = new Table;  // leaked: values may be made by threads that outlive static destructors
  std::lock_guard lock(table->mutex);
  std::weak_ptr<const Tiling>& place =
      table->known[{{tiling.parts().begin(), tiling.parts().end()}, {tiling.tiles().begin(), tiling.tiles().end()}}];
  TilingPtr found = place.lock();
  if (found == nullptr) place = found = std::make_shared<const Tiling>(std::move(tiling));
  return found;
}

}  // namespace pathways
