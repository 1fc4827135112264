#include "csrc/hlo/lay_out.h"

#include "csrc/hlo/edit.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/op_sharding.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

std::string Target(const std::string& config) {
  ProtoWriter fields;
  fields.Bytes(instruction_field::kCustomCallTarget, kShardTarget + config);
  return std::move(fields).Take();
}

// weight' = weight - gradient * rate, moment' = moment * 0 + gradient; all f32[4], results (moment', weight', product).
std::string Step(bool reversed_donors = false) {
  HloBuilder builder;
  const std::string shape = F32({4});
  const int64_t weight = builder.Parameter(shape), moment = builder.Parameter(shape),
                gradient = builder.Parameter(shape);
  const int64_t product = builder.Add("multiply", shape, {gradient, gradient});
  const int64_t updated = builder.Add("subtract", shape, {weight, product});
  const int64_t scaled = builder.Add("multiply", shape, {moment, moment});
  const int64_t moved = builder.Add("add", shape, {scaled, gradient});
  builder.Add("tuple", TupleShape({shape, shape, shape}), {moved, updated, product});
  const std::vector<int64_t> donors = reversed_donors ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 1};
  return *SetDonors(builder.Build("step"), donors);
}

TEST(ResultsTakeThePlaceOfTheDonatedParametersThatTheyAreMadeOf) {
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> found, Successors(Step()));
  EXPECT_EQ(found, (std::vector<int64_t>{1, 0, -1}));
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> same, Successors(Step(true)));
  EXPECT_EQ(same, found);
  EXPECT(!Successors("not a module").ok());
}

TEST(ParametersLieAsTheirValuesAndSuccessorsAsThey) {
  const TilingPtr rows = Intern(Tiling::FirstDimension(1, 2)), copy = Intern(Tiling::Replicated(1, 2));
  const TilingPtr tilings[] = {rows, copy, copy};
  ASSERT_OK_AND_ASSIGN(const LaidOut laid, LayOut(Step(), tilings, 2));
  EXPECT_EQ(laid.free, (std::vector<bool>{false, false, true}));
  ASSERT_OK_AND_ASSIGN(const HloModuleInfo info, ReadHloModule(laid.module));
  EXPECT_EQ(info.parameters.size(), size_t{3});
  EXPECT_EQ(info.results.size(), size_t{3});
  EXPECT(laid.module.find(EncodeOpSharding(*rows)) != std::string::npos);
}

TEST(WhatIsSaidOfAResultHolds) {
  HloBuilder builder;
  const std::string shape = F32({5, 4});
  const int64_t given = builder.Parameter(shape);
  const int64_t laid = builder.Add("custom-call", shape, {given}, Target("parts=2,1;tiles=0,1"));
  builder.Add("tuple", TupleShape({shape}), {laid});
  ASSERT_OK_AND_ASSIGN(const std::string module, SetDonors(builder.Build("lay"), std::vector<int64_t>{0}));
  const TilingPtr copy[] = {Intern(Tiling::Replicated(2, 2))};
  ASSERT_OK_AND_ASSIGN(const LaidOut two, LayOut(module, copy, 2));
  EXPECT_EQ(two.free, std::vector<bool>{false});
  EXPECT(two.module.find(kShardTarget) == std::string::npos);
  EXPECT(two.module.find("Sharding") != std::string::npos);
  // For another number of devices, and for one, it says nothing.
  const TilingPtr of_four[] = {Intern(Tiling::Replicated(2, 4))};
  ASSERT_OK_AND_ASSIGN(const LaidOut four, LayOut(module, of_four, 4));
  EXPECT(four.module.find("Sharding") == std::string::npos);
  ASSERT_OK_AND_ASSIGN(const std::string one, WithoutLayouts(module));
  EXPECT(one.find(kShardTarget) == std::string::npos && one.find("copy") != std::string::npos);
  EXPECT_EQ(*WithoutLayouts(Step()), Step());
}

TEST(ResultsThatAreParametersAreFound) {
  HloBuilder builder;
  const std::string shape = F32({4});
  const int64_t first = builder.Parameter(shape), second = builder.Parameter(shape);
  const int64_t laid = builder.Add("custom-call", shape, {second}, Target("parts=2;tiles=0,1"));
  const int64_t other = builder.Add("custom-call", shape, {second});
  const int64_t sum = builder.Add("add", shape, {first, second});
  builder.Add("tuple", TupleShape({shape, shape, shape, shape}), {laid, first, sum, other});
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> passed, PassedParameters(builder.Build("pass")));
  EXPECT_EQ(passed, (std::vector<int64_t>{1, 0, -1, -1}));
  HloBuilder tupled;
  tupled.Parameter(TupleShape({shape, shape}));
  ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> none, PassedParameters(tupled.Build("whole")));
  EXPECT_EQ(none, std::vector<int64_t>{-1});
  EXPECT(!PassedParameters("not a module").ok());
}

TEST(ConfigurationsThatAreNoneAreRefused) {
  for (const std::string config : {"", "parts=2;tiles=0", "parts=x;tiles=0,1", "parts=2,1", "parts=0;tiles=0"}) {
    HloBuilder builder;
    const std::string shape = F32({4});
    builder.Add("custom-call", shape, {builder.Parameter(shape)}, Target(config));
    EXPECT(!WithoutLayouts(builder.Build("lay")).ok());
  }
}

}  // namespace
}  // namespace pathways::hlo
