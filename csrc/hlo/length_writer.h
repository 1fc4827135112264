// Writes an entry computation whose length is a parameter: the instructions that sizes, masks and clamps need.
//
// Ownership: owns what it writes. Threads: none inside; use from one thread.
#ifndef PTPATHWAYS_HLO_LENGTH_WRITER_H_
#define PTPATHWAYS_HLO_LENGTH_WRITER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/hlo/growing_shape.h"

namespace pathways::hlo {

class LengthWriter {
 public:
  // Ids from `first_id` on are free; the length is parameter number `parameter`.
  LengthWriter(int64_t first_id, int64_t parameter) : next_id_(first_id), parameter_(parameter) {}

  ProtoWriter& out() { return out_; }

  // An array in row-major order. These give the id of what they write.
  int64_t Emit(std::string_view opcode, DType dtype, const std::vector<int64_t>& dims,
               const std::vector<int64_t>& operands, std::string_view fields = "");
  int64_t Constant(DType dtype, uint64_t bits);  // a scalar of a type of LiteralOf
  int64_t Broadcast(DType dtype, const std::vector<int64_t>& dims, int64_t scalar);
  int64_t Compare(std::string_view direction, const std::vector<int64_t>& dims, int64_t a, int64_t b);
  int64_t Iota(const std::vector<int64_t>& dims, size_t dimension);  // of s32
  // The length plus an offset, a scalar of kS32 or kS64.
  int64_t Size(DType dtype, int64_t offset);
  // `value`, and the scalar `fill` behind the length in a growing dimension.
  int64_t Masked(const GrowingShape& shape, int64_t value, size_t dimension, int64_t fill);

  // The instruction with another shape, and with other operands and fields where given. `dropped`: fields left out.
  Status Write(std::string_view instruction, const GrowingShape& shape,
               const std::optional<std::vector<int64_t>>& operands = std::nullopt, uint32_t dropped = 0,
               std::string_view fields = "");

  std::string Take() && { return std::move(out_).Take(); }

 private:
  int64_t Length();
  static std::string Dimension(size_t dimension);

  int64_t next_id_;
  const int64_t parameter_;
  std::optional<int64_t> length_;
  std::map<std::pair<DType, int64_t>, int64_t> sizes_;
  std::map<std::pair<DType, uint64_t>, int64_t> constants_;
  ProtoWriter out_;
};

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_LENGTH_WRITER_H_
