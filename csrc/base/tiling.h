// Tiling: how one tensor lies over the devices of a slice. Every dimension is cut into equal parts, and each device
// holds one tile; several devices may hold the same one. A dimension that its parts do not divide is padded at the end.
//
// Ownership: plain values. Threads: immutable after construction.
#ifndef PTPATHWAYS_BASE_TILING_H_
#define PTPATHWAYS_BASE_TILING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways {

class Tiling {
 public:
  // A copy of the whole tensor on each of `devices` devices.
  static Tiling Replicated(size_t rank, size_t devices);
  // The first dimension cut into one part per device, in order.
  static Tiling FirstDimension(size_t rank, size_t devices);
  // `parts`: per dimension; `tiles`: per device, the row-major number of its tile in the grid of parts.
  // INVALID_ARGUMENT: no devices, parts below 1, a tile outside of the grid, or one that no device holds.
  static Result<Tiling> Make(std::vector<int64_t> parts, std::vector<uint32_t> tiles);

  size_t rank() const { return parts_.size(); }
  size_t device_count() const { return tiles_.size(); }
  std::span<const int64_t> parts() const { return parts_; }
  std::span<const uint32_t> tiles() const { return tiles_; }
  int64_t tile_count() const;
  bool is_replicated() const { return tile_count() == 1; }
  // Whether every dimension of `dims` is a multiple of its parts.
  bool Divides(std::span<const int64_t> dims) const;

  // What each device holds of a tensor of type `whole`, with padding. The rank must be the tiling's.
  TensorType ShardType(const TensorType& whole) const;
  // The elements of `whole` that are in tile number `tile`, without padding.
  struct Box {
    std::vector<int64_t> start, size;
    bool is_empty() const;
  };
  Box BoxOf(const TensorType& whole, uint32_t tile) const;
  // For each tile, the first device that holds it.
  std::vector<size_t> Holders() const;

  // "{2,1 of 4}"
  std::string ToString() const;
  friend bool operator==(const Tiling&, const Tiling&) = default;

 private:
  Tiling(std::vector<int64_t> parts, std::vector<uint32_t> tiles)
      : parts_(std::move(parts)), tiles_(std::move(tiles)) {}

  std::vector<int64_t> parts_;
  std::vector<uint32_t> tiles_;
};

// Equal tilings are one object, as long as somebody holds it: to compare is to compare pointers.
using TilingPtr = std::shared_ptr<const Tiling>;
TilingPtr Intern(Tiling tiling);

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_TILING_H_
