#include "csrc/compiled/length_families.h"

#include "csrc/compiled/program.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::compiled {
namespace {

using hlo::F32;
using hlo::HloBuilder;

// One more element behind f32[length]. Of another `width` it is of another kind.
std::string Appended(int64_t length, int64_t width = 2) {
  HloBuilder builder;
  const int64_t x = builder.Parameter(F32({length, width})), y = builder.Parameter(F32({1, width}));
  ProtoWriter along;
  along.Int64(14, 0);
  builder.Add("concatenate", F32({length + 1, width}), {x, y}, along.bytes());
  return builder.Build("appended" + std::to_string(length));
}

// Told of a module, and of the program that was made of it.
std::shared_ptr<Program> Meet(LengthFamilies& families, const std::string& module) {
  const LengthFamilies::Choice choice = families.Choose(module);
  EXPECT(!choice.lengthened);
  auto program = std::make_shared<Program>();
  program->spec.module = module;
  if (choice.begins != 0) families.Made(choice.begins, program);
  return program;
}

TEST(AModuleOneLongerThanAnotherSharesItsComputationWithThoseThatFollow) {
  LengthFamilies families;
  const auto first = Meet(families, Appended(3));
  const LengthFamilies::Choice second = families.Choose(Appended(4));
  ASSERT(second.lengthened.has_value());
  EXPECT(second.is_new);
  EXPECT_EQ(second.lengthened->scalars.back().bits, 4);
  EXPECT_EQ(second.lengthened->program->module().longest, LengthFamilies::kLeastRoom - 1);
  for (const int64_t length : {5, 6, 9, 127, 2}) {
    const LengthFamilies::Choice next = families.Choose(Appended(length));
    ASSERT(next.lengthened.has_value());
    EXPECT(!next.is_new);
    EXPECT(next.lengthened->program == second.lengthened->program);
    EXPECT_EQ(next.lengthened->scalars.back().bits, static_cast<uint64_t>(length));
  }
  EXPECT(!families.Choose(Appended(3)).lengthened);  // it was compiled by itself
  const LengthFamilies::Choice beyond = families.Choose(Appended(128));
  ASSERT(beyond.lengthened.has_value());
  EXPECT(beyond.is_new);
  EXPECT_EQ(beyond.lengthened->program->module().longest, 255);
}

TEST(OtherSizesAndJumpsAreOtherKinds) {
  LengthFamilies families;
  const auto first = Meet(families, Appended(8));
  const auto shorter = Meet(families, Appended(7));
  const auto much_longer = Meet(families, Appended(30));
  const auto wider = Meet(families, Appended(31, 5));
  EXPECT(families.Choose(Appended(32, 5)).lengthened.has_value());
  EXPECT(!families.Choose(Appended(33)).lengthened);
  EXPECT(families.Choose(Appended(33, 5)).lengthened.has_value());
}

TEST(WithoutTheFirstProgramThereIsNothingToCompareWith) {
  LengthFamilies families;
  (void)Meet(families, Appended(3));
  EXPECT(!families.Choose(Appended(4)).lengthened);
}

TEST(LargeArraysGetLittleRoom) {
  LengthFamilies families;
  const auto first = Meet(families, Appended(3, 1 << 20));
  EXPECT(!families.Choose(Appended(4, 1 << 20)).lengthened);  // rows of 4 MiB, of which 16 are too many for 4
  const auto smaller = Meet(families, Appended(23, 1 << 16));
  const LengthFamilies::Choice some = families.Choose(Appended(24, 1 << 16));  // of 256 KiB
  ASSERT(some.lengthened.has_value());
  EXPECT_EQ(some.lengthened->program->module().longest, 31);
  const auto many = Meet(families, Appended(1005, 1 << 15));
  const LengthFamilies::Choice more = families.Choose(Appended(1006, 1 << 15));
  ASSERT(more.lengthened.has_value());
  EXPECT_EQ(more.lengthened->program->module().longest, 1023);
}

TEST(TheRoomIsAPowerOfTwoAboveTheLength) {
  EXPECT_EQ(LengthFamilies::RoomFor(1), 128);
  EXPECT_EQ(LengthFamilies::RoomFor(120), 128);
  EXPECT_EQ(LengthFamilies::RoomFor(121), 256);
  EXPECT_EQ(LengthFamilies::RoomFor(1000), 1024);
}

}  // namespace
}  // namespace pathways::compiled
