// Convolutions of HLO: read against their definition, and replaced.
#include "csrc/hlo/use_kernels.h"

#include <array>

#include "csrc/hlo/convolution_instruction.h"
#include "csrc/hlo/convolution_test_support.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/kernels/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

using kernels::NextIndex;

// The array as `shape` lays it out, from row-major; or, with `back`, the other way.
std::vector<float> LaidOut(const LaidOutShape& shape, const std::vector<float>& values, bool back = false) {
  std::vector<int64_t> strides(shape.dims.size());
  int64_t stride = 1;
  for (size_t i = shape.order.size(); i-- > 0;) {
    strides[static_cast<size_t>(shape.order[i])] = stride;
    stride *= shape.dims[static_cast<size_t>(shape.order[i])];
  }
  std::vector<float> out(values.size());
  std::vector<int64_t> at(shape.dims.size());
  size_t i = 0;
  do {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
    (back ? out[i] : out[static_cast<size_t>(offset)]) = back ? values[static_cast<size_t>(offset)] : values[i];
    ++i;
  } while (NextIndex(shape.dims, &at));
  return out;
}

std::vector<float> Kept(const ReadConvolution& read, const std::vector<int64_t>& dims,
                        const std::vector<float>& values) {
  if (read.kept.empty()) return values;
  std::vector<float> out;
  std::vector<int64_t> at(dims.size());
  size_t i = 0;
  do {
    bool inside = true;
    for (size_t d = 0; d < at.size(); ++d) {
      inside = inside && at[d] >= read.kept[d].first && at[d] < read.kept[d].second;
    }
    if (inside) out.push_back(values[i]);
    ++i;
  } while (NextIndex(dims, &at));
  return out;
}

std::vector<float> TurnedRound(const std::vector<int64_t>& dims, const std::vector<int64_t>& along,
                               const std::vector<float>& values) {
  std::vector<int64_t> every(dims.size());
  for (size_t d = 0; d < every.size(); ++d) every[d] = static_cast<int64_t>(d);
  std::vector<float> out(values.size());
  std::vector<int64_t> at(dims.size());
  size_t i = 0;
  do {
    std::vector<int64_t> from = at;
    for (const int64_t d : along)
      from[static_cast<size_t>(d)] = dims[static_cast<size_t>(d)] - 1 - from[static_cast<size_t>(d)];
    out[i++] = values[RowMajor(dims, every, from)];
  } while (NextIndex(dims, &at));
  return out;
}

TEST(AnHloConvolutionIsReadAsItsDefinitionSays) {
  HloGenerator generator(11);
  std::array<int, 3> kinds{};
  for (int i = 0; i < 1500; ++i) {
    const HloConvolution c = generator.Make();
    ASSERT_OK_AND_ASSIGN(const LaidOutShape left, ReadLaidOutShape(F32(c.left)));
    ASSERT_OK_AND_ASSIGN(const LaidOutShape right, ReadLaidOutShape(F32(c.right)));
    ProtoWriter instruction;
    instruction.Bytes(3, F32(c.result));
    instruction.Raw(ConvolutionFields(c));
    ASSERT_OK_AND_ASSIGN(const auto read, ReadConvolutionInstruction(
                                              instruction.bytes(), left, right,
                                              c.reverse_instruction ? SpatialOfRight(c) : std::vector<int64_t>()));
    if (!read) continue;
    ++kinds[static_cast<size_t>(read->convolution.kind)];
    const std::vector<float> a = generator.Numbers(c.left), b = generator.Numbers(c.right);
    EXPECT_EQ(read->skips_reverse, c.reverse_instruction);
    const auto first = LaidOut(read->first, Kept(*read, c.left, a));
    const auto second = LaidOut(read->second, TurnedRound(c.right, read->reversed, b));
    const auto result = LaidOut(read->result, ByDefinition(read->convolution, first, second), true);
    EXPECT(result == HloByDefinition(c, a, b));
  }
  for (const int count : kinds) EXPECT(count > 100);
}

TEST(WhatIsNoConvolutionOfAKernelLibraryIsLeft) {
  HloGenerator generator(12);
  HloConvolution c = generator.Make();
  while (c.feature_groups > 1 || c.batch_groups > 1) c = generator.Make();
  const auto is_left = [](const std::string& left_shape, const std::string& right_shape,
                          const std::string& result_shape, const std::string& fields) {
    const auto left = ReadLaidOutShape(left_shape), right = ReadLaidOutShape(right_shape);
    if (!left.ok() || !right.ok()) return true;
    ProtoWriter instruction;
    instruction.Bytes(3, result_shape);
    instruction.Raw(fields);
    const auto read = ReadConvolutionInstruction(instruction.bytes(), *left, *right, {});
    return read.ok() && !*read;
  };
  constexpr int64_t kF64 = 12;
  EXPECT(
      is_left(ShapeProto(kF64, c.left), ShapeProto(kF64, c.right), ShapeProto(kF64, c.result), ConvolutionFields(c)));
  std::vector<int64_t> nothing = c.left;
  nothing[0] = 0;
  EXPECT(is_left(F32(nothing), F32(c.right), F32(c.result), ConvolutionFields(c)));
  HloConvolution both = c;
  both.feature_groups = both.batch_groups = 2;
  EXPECT(is_left(F32(c.left), F32(c.right), F32(c.result), ConvolutionFields(both)));
  HloConvolution far = c;
  far.stride[0] = int64_t{1} << 40;
  EXPECT(is_left(F32(c.left), F32(c.right), F32(c.result), ConvolutionFields(far)));
  EXPECT(is_left(F32(c.left), F32(c.right), F32(c.result), ""));
}

TEST(MalformedModulesAreRefused) {
  EXPECT(!UseKernels("\xff\xff\xff", 1).ok());
  HloGenerator generator(13);
  const std::string module = ModuleOf(generator.Make());
  for (size_t i = 0; i < module.size(); ++i) {  // any bytes are safe to give
    std::string changed = module;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    (void)UseKernels(changed, 1);
    (void)UseKernels(std::string_view(module).substr(0, i), 1);
  }
}

TEST(WhatXlaComputesFasterIsLeft) {
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK(kernels::LoadOnednn(kernels::OnednnPath()));
  // Batches of 4 images of 32 x 32, windows of 3 x 3.
  const auto replaced = [](int64_t in, int64_t out, int64_t groups, int64_t batch) -> size_t {
    HloConvolution c;
    c.left = {batch, in, 32, 32}, c.right = {out, in / groups, 3, 3}, c.result = {batch, out, 32, 32};
    c.left_roles = c.right_roles = c.result_roles = {0, 1, 2, 3};
    c.stride = c.low = c.high = c.dilation = c.base_dilation = {1, 1};
    c.turned = {0, 0};
    c.feature_groups = groups;
    const auto edited = UseKernels(ModuleOf(c), 1);
    return edited.ok() ? edited->convolutions : 99;
  };
  EXPECT_EQ(replaced(32, 32, 1, 4), 1u);
  EXPECT_EQ(replaced(4, 4, 1, 4), 0u);  // small
  EXPECT_EQ(replaced(4, 4, 2, 4), 1u);  // small, in groups
}

}  // namespace
}  // namespace pathways::hlo
