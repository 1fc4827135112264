#include "csrc/hlo/convolution_instruction.h"

#include <algorithm>
#include <numeric>

#include "csrc/base/tensor_type.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

using kernels::Convolution;
using kernels::StridedArray;

constexpr int64_t kMaxSpatial = 3;
// Paddings and dilations beyond this are no convolution that anyone trains; sums of them must not overflow.
constexpr int64_t kLargest = int64_t{1} << 31;

struct WindowDimension {
  int64_t size = 0, stride = 1, low = 0, high = 0, dilation = 1, base_dilation = 1;
  bool reversed = false;
};

struct Numbers {  // ConvolutionDimensionNumbers
  int64_t left_batch = 0, left_feature = 0, right_in = 0, right_out = 0, result_batch = 0, result_feature = 0;
  std::vector<int64_t> left_spatial, right_spatial, result_spatial;
};

struct ConvolutionFields {
  std::vector<WindowDimension> window;
  Numbers numbers;
  int64_t feature_groups = 1, batch_groups = 1;
};

Result<WindowDimension> ReadWindowDimension(std::string_view bytes) {
  WindowDimension out;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    const int64_t value = field.as_int64();
    if (field.number == 1) out.size = value;
    if (field.number == 2) out.stride = value;
    if (field.number == 3) out.low = value;
    if (field.number == 4) out.high = value;
    if (field.number == 5) out.dilation = value;
    if (field.number == 6) out.base_dilation = value;
    if (field.number == 7) out.reversed = value != 0;
  }
  if (!reader.ok()) return MalformedModule("a window");
  return out;
}

Result<Numbers> ReadNumbers(std::string_view bytes) {
  Numbers out;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  const auto append = [&](std::vector<int64_t>* to) {
    ok = ok && ForEachInt64(field, [to](int64_t value) { to->push_back(value); });
  };
  while (reader.Next(&field)) {
    if (field.number == 3) out.right_in = field.as_int64();
    if (field.number == 4) out.right_out = field.as_int64();
    if (field.number == 6) append(&out.right_spatial);
    if (field.number == 7) out.left_batch = field.as_int64();
    if (field.number == 8) out.left_feature = field.as_int64();
    if (field.number == 9) out.result_batch = field.as_int64();
    if (field.number == 10) out.result_feature = field.as_int64();
    if (field.number == 11) append(&out.left_spatial);
    if (field.number == 12) append(&out.result_spatial);
  }
  if (!reader.ok() || !ok) return MalformedModule("the dimensions of a convolution");
  return out;
}

Result<ConvolutionFields> ReadConvolutionFields(std::string_view instruction) {
  ConvolutionFields out;
  ProtoReader reader(instruction);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(instruction_field::kWindow, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const auto dimensions, SubMessages(field.bytes, 1));
      for (const std::string_view dimension : dimensions) {
        PW_ASSIGN_OR_RETURN(const WindowDimension window, ReadWindowDimension(dimension));
        out.window.push_back(window);
      }
    }
    if (field.is(instruction_field::kConvolutionDimensions, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(out.numbers, ReadNumbers(field.bytes));
    }
    if (field.is(instruction_field::kFeatureGroups, WireType::kVarint)) out.feature_groups = field.as_int64();
    if (field.is(instruction_field::kBatchGroups, WireType::kVarint)) out.batch_groups = field.as_int64();
  }
  if (!reader.ok()) return MalformedModule("an instruction");
  out.feature_groups = std::max<int64_t>(out.feature_groups, 1);
  out.batch_groups = std::max<int64_t>(out.batch_groups, 1);
  return out;
}

std::vector<int64_t> Joined(std::initializer_list<int64_t> begin, const std::vector<int64_t>& end) {
  std::vector<int64_t> out(begin);
  out.insert(out.end(), end.begin(), end.end());
  return out;
}

// (batch, features, spatial...) of a shape whose dimensions play the roles `roles`.
StridedArray Activations(const LaidOutShape& shape, const std::vector<int64_t>& roles) {
  const std::vector<int64_t> strides = StridesOf(shape);
  StridedArray out;
  for (const int64_t dim : roles) {
    out.dims.push_back(shape.dims[static_cast<size_t>(dim)]);
    out.strides.push_back(strides[static_cast<size_t>(dim)]);
  }
  return out;
}

// (groups, out, in, spatial...) of a shape whose dimensions play the roles (out, in, spatial...). The groups are the
// slower part of the dimension that holds them: `of_out`, or of the one for in.
StridedArray Weights(const LaidOutShape& shape, const std::vector<int64_t>& roles, int64_t groups, bool of_out) {
  StridedArray out = Activations(shape, roles);
  const size_t holder = of_out ? 0 : 1;
  out.dims[holder] /= groups;
  const int64_t stride = out.strides[holder] * out.dims[holder];
  out.dims.insert(out.dims.begin(), groups);
  out.strides.insert(out.strides.begin(), stride);
  return out;
}

// The reading of one convolution, with what the three attempts share.
class Reader {
 public:
  Reader(ConvolutionFields fields, const LaidOutShape& left, const LaidOutShape& right, LaidOutShape result,
         const std::vector<int64_t>& reversed)
      : fields_(std::move(fields)), left_(left), right_(right), result_(std::move(result)), reverse_(reversed) {}

  std::optional<ReadConvolution> Read() {
    if (!Understood()) return std::nullopt;
    const Numbers& numbers = fields_.numbers;
    out_.convolution.dtype = left_.element_type == XlaPrimitiveFromDType(DType::kF32) ? DType::kF32 : DType::kBF16;
    // What a front end makes of a weight gradient takes the features of its left operand for the batch, which an
    // ordinary convolution does not. Either reading is right; the one meant is the faster.
    const bool contracts_batch = fields_.batch_groups > 1 || numbers.left_feature < numbers.left_batch;
    if (fields_.batch_groups > 1 && fields_.feature_groups > 1) return std::nullopt;
    if (contracts_batch && fields_.feature_groups == 1 && !base_dilated_ && !turned_somewhere_) {
      return WeightGradient();
    }
    if (fields_.batch_groups > 1) return std::nullopt;
    if (base_dilated_ || (turned_everywhere_ && unit_strides_)) return InputGradient();
    return Forward();
  }

 private:
  bool Understood() {
    const Numbers& numbers = fields_.numbers;
    const size_t spatial = fields_.window.size(), rank = spatial + 2;
    if (spatial < 1 || spatial > static_cast<size_t>(kMaxSpatial) || left_.dims.size() != rank ||
        right_.dims.size() != rank || result_.dims.size() != rank) {
      return false;
    }
    left_roles_ = Joined({numbers.left_batch, numbers.left_feature}, numbers.left_spatial);
    right_roles_ = Joined({numbers.right_out, numbers.right_in}, numbers.right_spatial);
    result_roles_ = Joined({numbers.result_batch, numbers.result_feature}, numbers.result_spatial);
    if (!IsPermutation(left_roles_, rank) || !IsPermutation(right_roles_, rank) ||
        !IsPermutation(result_roles_, rank)) {
      return false;
    }
    const int64_t f32 = XlaPrimitiveFromDType(DType::kF32), bf16 = XlaPrimitiveFromDType(DType::kBF16);
    if ((left_.element_type != f32 && left_.element_type != bf16) || right_.element_type != left_.element_type ||
        result_.element_type != left_.element_type) {
      return false;
    }
    for (const LaidOutShape* shape : {&left_, &right_, static_cast<const LaidOutShape*>(&result_)}) {
      if (std::any_of(shape->dims.begin(), shape->dims.end(), [](int64_t dim) { return dim < 1 || dim > kLargest; })) {
        return false;
      }
    }
    int64_t turned = 0, wide = 0;
    for (size_t i = 0; i < spatial; ++i) {
      WindowDimension& window = fields_.window[i];
      const int64_t kernel = Right(i);
      if (window.size != kernel || window.stride < 1 || window.dilation < 1 || window.base_dilation < 1) return false;
      for (const int64_t number : {window.stride, window.dilation, window.base_dilation, window.low, window.high}) {
        if (number > kLargest || number < -kLargest) return false;
      }
      if (kernel == 1) window.dilation = 1;
      if (Left(i) == 1) window.base_dilation = 1;
      const bool by_instruction =
          std::find(reverse_.begin(), reverse_.end(), numbers.right_spatial[i]) != reverse_.end();
      window.reversed = window.reversed != by_instruction;
      base_dilated_ = base_dilated_ || window.base_dilation > 1;
      unit_strides_ = unit_strides_ && window.stride == 1;
      if (kernel > 1) ++wide;
      if (kernel > 1 && window.reversed) ++turned;
    }
    turned_somewhere_ = turned > 0;
    turned_everywhere_ = wide > 0 && turned == wide;
    // A reverse of other dimensions than the window's is not looked through.
    for (const int64_t dim : reverse_) {
      if (dim == numbers.right_in || dim == numbers.right_out) return false;
    }
    out_.skips_reverse = !reverse_.empty();
    return true;
  }

  int64_t Left(size_t i) const { return left_.dims[static_cast<size_t>(fields_.numbers.left_spatial[i])]; }
  int64_t Right(size_t i) const { return right_.dims[static_cast<size_t>(fields_.numbers.right_spatial[i])]; }
  int64_t Out(size_t i) const { return result_.dims[static_cast<size_t>(fields_.numbers.result_spatial[i])]; }

  std::optional<ReadConvolution> Forward() {
    Convolution& made = out_.convolution;
    made.kind = Convolution::Kind::kForward;
    for (size_t i = 0; i < fields_.window.size(); ++i) {
      const WindowDimension& window = fields_.window[i];
      if (window.reversed && Right(i) > 1) out_.reversed.push_back(fields_.numbers.right_spatial[i]);
      if (!Pad(i, Right(i), Out(i), window.stride, window.dilation)) return std::nullopt;
    }
    LieLikeLeft();
    made.source = Activations(out_.first, left_roles_);
    made.weights = Weights(right_, right_roles_, fields_.feature_groups, true);
    made.target = Activations(result_, result_roles_);
    return Done();
  }

  // out[k] = sum over n and y of left[n][k * stride + y * dilation - low] * right[n][y]: the right operand is the
  // target's gradient, and the window's stride and dilation have changed places.
  std::optional<ReadConvolution> WeightGradient() {
    Convolution& made = out_.convolution;
    made.kind = Convolution::Kind::kWeightGradient;
    for (size_t i = 0; i < fields_.window.size(); ++i) {
      const WindowDimension& window = fields_.window[i];
      if (!Pad(i, Out(i), Right(i), window.dilation, Out(i) == 1 ? 1 : window.stride)) return std::nullopt;
    }
    std::swap(left_roles_[0], left_roles_[1]);
    std::swap(result_roles_[0], result_roles_[1]);
    const std::vector<int64_t> right{fields_.numbers.right_in, fields_.numbers.right_out};
    std::copy(right.begin(), right.end(), right_roles_.begin());
    result_.order = result_roles_;  // as front ends store weights
    made.source = Activations(out_.first, left_roles_);
    made.target = Activations(right_, right_roles_);
    made.weights = Weights(result_, result_roles_, fields_.batch_groups, true);
    return Done();
  }

  // out[x] = sum over k of right[k] * dilated[x + k * dilation - low], where the left operand, dilated, is the target's
  // gradient: with the window turned round, x is (K - 1) * dilation - low past where the gradient's window begins.
  std::optional<ReadConvolution> InputGradient() {
    Convolution& made = out_.convolution;
    made.kind = Convolution::Kind::kInputGradient;
    if (!unit_strides_) return std::nullopt;
    for (size_t i = 0; i < fields_.window.size(); ++i) {
      const WindowDimension& window = fields_.window[i];
      if (!window.reversed && Right(i) > 1) out_.reversed.push_back(fields_.numbers.right_spatial[i]);
      const int64_t reach = (Right(i) - 1) * window.dilation;
      const int64_t low = reach - window.low;
      const int64_t high = (Left(i) - 1) * window.base_dilation + reach + 1 - Out(i) - low;
      if (low < 0 || high <= -window.base_dilation) return std::nullopt;
      Append(window.base_dilation, window.dilation, low, high);
    }
    LieLikeLeft();
    std::swap(right_roles_[0], right_roles_[1]);  // what the left operand calls features are the weights' outputs
    made.target = Activations(out_.first, left_roles_);
    made.weights = Weights(right_, right_roles_, fields_.feature_groups, false);
    made.source = Activations(result_, result_roles_);
    return Done();
  }

  // Padding of a source (the left operand) of which `kernel` positions meet `target` windows. Where the padding takes
  // elements away, the operand is cut instead.
  bool Pad(size_t i, int64_t kernel, int64_t target, int64_t stride, int64_t dilation) {
    int64_t from = 0, size = Left(i), low = fields_.window[i].low;
    if (low < 0) {
      from = -low;
      size += low;
      low = 0;
    }
    int64_t high = (target - 1) * stride + (kernel - 1) * dilation + 1 - size - low;
    if (high <= -stride) {
      size += high;
      high = 0;
    }
    if (size < 1) return false;
    const auto dim = static_cast<size_t>(fields_.numbers.left_spatial[i]);
    if (size != Left(i)) {
      if (out_.kept.empty()) {
        for (const int64_t whole : left_.dims) out_.kept.emplace_back(0, whole);
      }
      out_.kept[dim] = {from, from + size};
    }
    if (out_.first.dims.empty()) out_.first = left_;
    out_.first.dims[dim] = size;
    Append(stride, dilation, low, high);
    return true;
  }

  void Append(int64_t stride, int64_t dilation, int64_t low, int64_t high) {
    Convolution& made = out_.convolution;
    made.stride.push_back(stride);
    made.dilation.push_back(dilation);
    made.low.push_back(low);
    made.high.push_back(high);
  }

  // The result lies as the left operand does, role by role: what reads it was mostly written for that order.
  void LieLikeLeft() {
    if (out_.first.dims.empty()) out_.first = left_;
    result_.order.clear();
    for (const int64_t dim : left_.order) {
      const auto role = std::find(left_roles_.begin(), left_roles_.end(), dim) - left_roles_.begin();
      result_.order.push_back(result_roles_[static_cast<size_t>(role)]);
    }
  }

  std::optional<ReadConvolution> Done() {
    out_.second = right_;
    out_.result = result_;
    // The rest of what makes a convolution consistent is checked where it is decoded.
    const std::vector<int64_t> numbers = out_.convolution.Encode();
    if (!Convolution::Decode(numbers).ok()) return std::nullopt;
    return std::move(out_);
  }

  ConvolutionFields fields_;
  const LaidOutShape& left_;
  const LaidOutShape& right_;
  LaidOutShape result_;
  const std::vector<int64_t>& reverse_;
  std::vector<int64_t> left_roles_, right_roles_, result_roles_;  // (batch, feature, ...), (out, in, ...)
  bool base_dilated_ = false, unit_strides_ = true, turned_somewhere_ = false, turned_everywhere_ = false;
  ReadConvolution out_;
};

}  // namespace

Result<std::optional<ReadConvolution>> ReadConvolutionInstruction(std::string_view instruction,
                                                                  const LaidOutShape& left, const LaidOutShape& right,
                                                                  const std::vector<int64_t>& reversed) {
  PW_ASSIGN_OR_RETURN(ConvolutionFields fields, ReadConvolutionFields(instruction));
  PW_ASSIGN_OR_RETURN(const Instruction read, ReadInstruction(instruction));
  const Result<LaidOutShape> result = ReadLaidOutShape(read.shape);
  if (!result.ok()) return std::optional<ReadConvolution>();
  return Reader(std::move(fields), left, right, *result, reversed).Read();
}

}  // namespace pathways::hlo
