#include "csrc/hlo/summary.h"

#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

std::string Literal(uint32_t number, std::string_view bytes) {
  ProtoWriter literal, fields;
  literal.Bytes(1, F32({}));
  literal.Bytes(number, bytes);
  fields.Bytes(8, literal.bytes());
  return std::move(fields).Take();
}

std::string DetailOfConstant(uint32_t literal_field, std::string_view bytes) {
  HloBuilder module;
  module.Add("constant", F32({}), {}, Literal(literal_field, bytes));
  return SummarizeHlo(module.Build("m"))->instructions.back().detail;
}

TEST(TypesOperationsAndNumbersAreReadable) {
  HloBuilder module;
  const int64_t x = module.Parameter(F32({8, 4}));
  module.Zero();
  ProtoWriter metadata, fields;
  metadata.Bytes(3, "train.py");
  metadata.Int64(4, 42);
  fields.Raw(SliceOf(2, 7, 1));
  fields.Bytes(7, metadata.bytes());
  module.Add("slice", F32({5, 4}), {x}, fields.bytes());
  ASSERT_OK_AND_ASSIGN(const HloSummary summary, SummarizeHlo(module.Build("step")));
  EXPECT_EQ(summary.name, "step");
  EXPECT_EQ(summary.parameters, (std::vector<std::string>{"f32[8,4]"}));
  EXPECT_EQ(summary.results, (std::vector<std::string>{"f32[5,4]"}));
  const size_t count = summary.instructions.size();
  EXPECT_EQ(count, 6u);  // three of the addition before
  const HloInstructionSummary& slice = summary.instructions[count - 1];
  EXPECT_EQ(slice.opcode, "slice");
  EXPECT_EQ(slice.shape, "f32[5,4]");
  EXPECT_EQ(slice.detail, "2:7");
  EXPECT_EQ(slice.source, "train.py:42");
  EXPECT_EQ(summary.instructions[count - 2].detail, "0");
  EXPECT_EQ(summary.instructions[count - 3].detail, "0");  // the parameter's number
}

TEST(ConstantsOfEveryTypeShowTheirValues) {
  EXPECT_EQ(DetailOfConstant(8, std::string_view("\0\0\x80\xbf", 4)), "-1");
  EXPECT_EQ(DetailOfConstant(9, std::string_view("\0\0\0\0\0\0\xe0\x3f", 8)), "0.5");
  EXPECT_EQ(DetailOfConstant(11, std::string_view("\0\x3c\0\xc0\0\x38\x1\0", 8)), "1, -2, 0.5, 5.9604645e-08");
  EXPECT_EQ(DetailOfConstant(13, std::string_view("\x80\x3f", 2)), "1");
  EXPECT_EQ(DetailOfConstant(4, "\x07"), "7");
  EXPECT_EQ(DetailOfConstant(2, "\x01"), "true");
  EXPECT_EQ(DetailOfConstant(15, "\xff"), "-1");
}

TEST(LongConstantsAndOtherAttributesAreNumbersThatDiffer) {
  const std::string long_one(64, 'a'), other = long_one.substr(1) + "b";
  EXPECT(DetailOfConstant(8, long_one).starts_with("#"));
  EXPECT_NE(DetailOfConstant(8, long_one), DetailOfConstant(8, other));
  std::string details[2];
  for (int64_t i = 0; i < 2; ++i) {
    HloBuilder module;
    ProtoWriter dimensions;
    dimensions.Int64(14, i);
    module.Add("broadcast", F32({2, 2}), {module.Parameter(F32({2}))}, dimensions.bytes());
    details[i] = SummarizeHlo(module.Build("m"))->instructions.back().detail;
  }
  EXPECT_NE(details[0], details[1]);
}

TEST(WhatIsNoModuleIsRefused) { EXPECT(!SummarizeHlo("nonsense").ok()); }

TEST(WhereTensorsOfTwoPlacesMeet) {
  HloBuilder module;
  const int64_t x = module.Parameter(F32({4, 2})), y = module.Parameter(F32({2})), alpha = module.Parameter(F32({}));
  const int64_t scaled = module.Add("multiply", F32({2}), {y, module.Add("broadcast", F32({2}), {alpha})});
  const int64_t spread = module.Add("broadcast", F32({4, 2}), {scaled});
  ProtoWriter metadata, fields;
  metadata.Bytes(3, "train.py");
  metadata.Int64(4, 12);
  fields.Bytes(7, metadata.bytes());
  const int64_t sum = module.Add("add", F32({4, 2}), {x, spread}, fields.bytes());
  module.Add("tuple", TupleShape({F32({4, 2}), F32({2})}), {sum, module.Add("negate", F32({2}), {y})});
  const std::string bytes = module.Build("m");
  const Meeting found = *FirstMeeting(bytes, std::vector<int64_t>{1, 2, 1});  // and not that of y and alpha
  EXPECT_EQ(found.opcode, "add");
  EXPECT_EQ(found.types[0], "f32[4,2]");
  EXPECT_EQ(found.types[1], "f32[2]");
  EXPECT_EQ(found.places[0], 1);
  EXPECT_EQ(found.places[1], 2);
  EXPECT_EQ(found.source, "train.py:12");
  EXPECT_EQ(FirstMeeting(bytes, std::vector<int64_t>{1, 1, 2})->opcode, "multiply");
  EXPECT_EQ(FirstMeeting(bytes, std::vector<int64_t>{1, 1, 1})->opcode, "");
}

}  // namespace
}  // namespace pathways::hlo
