#include "csrc/hlo/dot_instruction.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "csrc/base/tensor_type.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

using kernels::Product;
using kernels::StridedArray;
using Dimensions = std::vector<int64_t>;

constexpr uint32_t kAlgorithm = 2;  // PrecisionConfig

struct DotNumbers {  // DotDimensionNumbers
  Dimensions left_contracting, right_contracting, left_batch, right_batch;
};

Result<DotNumbers> ReadDotNumbers(std::string_view bytes) {
  DotNumbers out;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    Dimensions* const to = field.number == 1   ? &out.left_contracting
                           : field.number == 2 ? &out.right_contracting
                           : field.number == 3 ? &out.left_batch
                           : field.number == 4 ? &out.right_batch
                                               : nullptr;
    if (to != nullptr) ok = ok && ForEachInt64(field, [to](int64_t dim) { to->push_back(dim); });
  }
  if (!reader.ok() || !ok) return MalformedModule("the dimensions of a dot");
  return out;
}

// The dimensions of a rank that are in neither, ascending.
Dimensions Others(size_t rank, const Dimensions& a, const Dimensions& b) {
  Dimensions out;
  for (int64_t dim = 0; dim < static_cast<int64_t>(rank); ++dim) {
    if (std::find(a.begin(), a.end(), dim) == a.end() && std::find(b.begin(), b.end(), dim) == b.end()) {
      out.push_back(dim);
    }
  }
  return out;
}

Dimensions Joined(const std::array<const Dimensions*, 3>& parts) {
  Dimensions out;
  for (const Dimensions* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}

// An array as three dimensions: those of each part, which go through them in the order given, the last one fastest.
// Nothing if they do not follow one another so in memory.
std::optional<StridedArray> InThree(const LaidOutShape& shape, const std::array<const Dimensions*, 3>& parts) {
  const Dimensions strides = StridesOf(shape);
  StridedArray out;
  for (const Dimensions* part : parts) {
    int64_t size = 1, stride = 1;
    for (size_t i = part->size(); i-- > 0;) {
      const auto dim = static_cast<size_t>((*part)[i]);
      if (shape.dims[dim] == 1) continue;
      if (size == 1) stride = strides[dim];
      if (strides[dim] != size * stride) return std::nullopt;
      size *= shape.dims[dim];
    }
    out.dims.push_back(size);
    out.strides.push_back(stride);
  }
  return out;
}

StridedArray Transposed(StridedArray array) {
  std::swap(array.dims[1], array.dims[2]);
  std::swap(array.strides[1], array.strides[2]);
  return array;
}

// A dimension of one element has no stride of its own. The library wants one that agrees with those after it.
StridedArray WithAgreeingStrides(StridedArray array) {
  for (size_t i = array.dims.size(); i-- > 0;) {
    if (array.dims[i] > 1) continue;
    array.strides[i] = i + 1 < array.dims.size() ? array.dims[i + 1] * array.strides[i + 1] : 1;
  }
  return array;
}

// Pairs of contracting dimensions in the order in which an array goes through its own ones.
void SortLike(const LaidOutShape& shape, Dimensions* own, Dimensions* other) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < own->size(); ++i) pairs.emplace_back((*own)[i], (*other)[i]);
  const auto place = [&](int64_t dim) {
    return std::find(shape.order.begin(), shape.order.end(), dim) - shape.order.begin();
  };
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  for (size_t i = 0; i < pairs.size(); ++i) std::tie((*own)[i], (*other)[i]) = pairs[i];
}

class DotReader {
 public:
  DotReader(DotNumbers numbers, const LaidOutShape& left, const LaidOutShape& right, const LaidOutShape& result)
      : numbers_(std::move(numbers)), left_(left), right_(right), result_(result) {}

  std::optional<ReadProduct> Read(const Dimensions& result_order) {
    if (!Understood()) return std::nullopt;
    ReadProduct out{.product = {}, .left = left_, .right = right_, .result = result_};
    const DotNumbers& n = numbers_;
    SortLike(left_, &numbers_.left_contracting, &numbers_.right_contracting);
    std::optional<StridedArray> left = InThree(left_, {&n.left_batch, &left_free_, &n.left_contracting});
    std::optional<StridedArray> right = InThree(right_, {&n.right_batch, &n.right_contracting, &right_free_});
    if (!left || !right) {  // perhaps the other one's order serves both
      SortLike(right_, &numbers_.right_contracting, &numbers_.left_contracting);
      left = InThree(left_, {&n.left_batch, &left_free_, &n.left_contracting});
      right = InThree(right_, {&n.right_batch, &n.right_contracting, &right_free_});
    }
    if (!left) {
      out.left.order = Joined({&n.left_batch, &left_free_, &n.left_contracting});
      left = InThree(out.left, {&n.left_batch, &left_free_, &n.left_contracting});
    }
    if (!right) {
      out.right.order = Joined({&n.right_batch, &n.right_contracting, &right_free_});
      right = InThree(out.right, {&n.right_batch, &n.right_contracting, &right_free_});
    }
    if (IsPermutation(result_order, result_.dims.size())) out.result.order = result_order;
    std::optional<StridedArray> result = InThree(out.result, {&result_batch_, &result_rows_, &result_columns_});
    // The library wants rows or columns of a result in one piece.
    if (!result || (!InOnePiece(*result, 1) && !InOnePiece(*result, 2))) {
      std::iota(out.result.order.begin(), out.result.order.end(), 0);
      result = InThree(out.result, {&result_batch_, &result_rows_, &result_columns_});
    }
    if (!left || !right || !result) return std::nullopt;
    out.product.dtype = left_.element_type == XlaPrimitiveFromDType(DType::kF32) ? DType::kF32 : DType::kBF16;
    out.swapped = !InOnePiece(*result, 2);
    out.product.left = WithAgreeingStrides(out.swapped ? Transposed(*right) : *left);
    out.product.right = WithAgreeingStrides(out.swapped ? Transposed(*left) : *right);
    out.product.result = WithAgreeingStrides(out.swapped ? Transposed(*result) : *result);
    // The rest of what makes a product consistent is checked where it is decoded.
    if (!Product::Decode(out.product.Encode()).ok()) return std::nullopt;
    return out;
  }

 private:
  static bool InOnePiece(const StridedArray& array, size_t dim) { return array.strides[dim] == 1; }

  bool Understood() {
    const DotNumbers& n = numbers_;
    const int64_t f32 = XlaPrimitiveFromDType(DType::kF32), bf16 = XlaPrimitiveFromDType(DType::kBF16);
    if ((left_.element_type != f32 && left_.element_type != bf16) || right_.element_type != left_.element_type ||
        result_.element_type != left_.element_type) {
      return false;
    }
    left_free_ = Others(left_.dims.size(), n.left_batch, n.left_contracting);
    right_free_ = Others(right_.dims.size(), n.right_batch, n.right_contracting);
    if (n.left_contracting.size() != n.right_contracting.size() || n.left_batch.size() != n.right_batch.size() ||
        !IsPermutation(Joined({&n.left_batch, &left_free_, &n.left_contracting}), left_.dims.size()) ||
        !IsPermutation(Joined({&n.right_batch, &n.right_contracting, &right_free_}), right_.dims.size()) ||
        result_.dims.size() != n.left_batch.size() + left_free_.size() + right_free_.size()) {
      return false;
    }
    for (const LaidOutShape* shape : {&left_, &right_, &result_}) {
      int64_t elements = 1;
      for (const int64_t dim : shape->dims) {
        if (dim < 1 || __builtin_mul_overflow(elements, dim, &elements) || elements > StridedArray::kMaxElements) {
          return false;
        }
      }
    }
    // The result has the batch, the left operand's other dimensions and the right one's, in this order.
    int64_t at = 0;
    const auto take = [&](const LaidOutShape& from, const Dimensions& dims, Dimensions* to) {
      bool same = true;
      for (const int64_t dim : dims) {
        same = same && result_.dims[static_cast<size_t>(at)] == from.dims[static_cast<size_t>(dim)];
        to->push_back(at++);
      }
      return same;
    };
    return take(left_, n.left_batch, &result_batch_) && take(left_, left_free_, &result_rows_) &&
           take(right_, right_free_, &result_columns_);
  }

  DotNumbers numbers_;
  const LaidOutShape& left_;
  const LaidOutShape& right_;
  const LaidOutShape& result_;
  Dimensions left_free_, right_free_;
  Dimensions result_batch_, result_rows_, result_columns_;
};

}  // namespace

Result<std::optional<ReadProduct>> ReadDotInstruction(std::string_view instruction, const LaidOutShape& left,
                                                      const LaidOutShape& right,
                                                      const std::vector<int64_t>& result_order) {
  PW_ASSIGN_OR_RETURN(const Instruction read, ReadInstruction(instruction));
  const Result<LaidOutShape> result = ReadLaidOutShape(read.shape);
  PW_ASSIGN_OR_RETURN(const auto numbers, SubMessages(instruction, instruction_field::kDotDimensions));
  PW_ASSIGN_OR_RETURN(const auto precisions, SubMessages(instruction, instruction_field::kPrecision));
  if (!result.ok() || numbers.size() != 1) return std::optional<ReadProduct>();
  for (const std::string_view precision : precisions) {
    PW_ASSIGN_OR_RETURN(const int64_t algorithm, ReadId(precision, kAlgorithm));
    if (algorithm != 0) return std::optional<ReadProduct>();
  }
  PW_ASSIGN_OR_RETURN(DotNumbers read_numbers, ReadDotNumbers(numbers[0]));
  return DotReader(std::move(read_numbers), left, right, *result).Read(result_order);
}

}  // namespace pathways::hlo
