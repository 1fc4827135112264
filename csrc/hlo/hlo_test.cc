#include "csrc/hlo/hlo.h"

#include <random>

#include "csrc/base/proto.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

// Writers of the proto messages, with the public field numbers.
std::string ShapeOf(int64_t element_type, std::initializer_list<int64_t> dims) {
  ProtoWriter out;
  out.Int64(2, element_type);
  for (const int64_t dim : dims) out.Int64(3, dim);
  return std::move(out).Take();
}

std::string Tuple(std::initializer_list<std::string> elements) {
  ProtoWriter out;
  out.Int64(2, 13);
  for (const std::string& element : elements) out.Bytes(4, element);
  return std::move(out).Take();
}

std::string ProgramShape(std::initializer_list<std::string> parameters, const std::string& result) {
  ProtoWriter out;
  for (const std::string& parameter : parameters) out.Bytes(1, parameter);
  out.Bytes(2, result);
  return std::move(out).Take();
}

std::string InstructionOf(std::string_view opcode, std::string_view file = "", int64_t line = 0, int64_t frame = 0) {
  ProtoWriter out, metadata;
  out.Bytes(1, "some.name");
  out.Bytes(2, opcode);
  if (!file.empty()) metadata.Bytes(3, file);
  if (line != 0) metadata.Int64(4, line);
  if (frame != 0) metadata.Int64(15, frame);
  if (!metadata.bytes().empty()) out.Bytes(7, metadata.bytes());
  return std::move(out).Take();
}

std::string ComputationOf(int64_t id, std::initializer_list<std::string> instructions) {
  ProtoWriter out;
  for (const std::string& instruction : instructions) out.Bytes(2, instruction);
  out.Int64(5, id);
  return std::move(out).Take();
}

std::string ModuleOf(const std::string& program_shape, std::initializer_list<std::string> computations,
                     const std::string& rest = "") {
  ProtoWriter out;
  out.Bytes(1, "jit_step");
  for (const std::string& computation : computations) out.Bytes(3, computation);
  out.Bytes(4, program_shape);
  out.Int64(6, 7);
  out.Raw(rest);
  return std::move(out).Take();
}

const std::string kF32x4 = ShapeOf(11, {4});

TEST(TypesOfParametersAndResults) {
  const auto module =
      ModuleOf(ProgramShape({ShapeOf(11, {2, 3}), ShapeOf(16, {}), ShapeOf(5, {0})}, Tuple({kF32x4, ShapeOf(1, {})})),
               {ComputationOf(7, {InstructionOf("add")})});
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT_EQ(info.name, "jit_step");
  ASSERT_EQ(info.parameters.size(), size_t{3});
  EXPECT_EQ(info.parameters[0].ToString(), "f32[2,3]");
  EXPECT_EQ(info.parameters[1].ToString(), "bf16[]");
  EXPECT_EQ(info.parameters[2].ToString(), "s64[0]");
  EXPECT(info.result_is_tuple);
  ASSERT_EQ(info.results.size(), size_t{2});
  EXPECT_EQ(info.results[1].ToString(), "pred[]");
  EXPECT(!info.has_cross_device_instructions);
  EXPECT_EQ(info.source_location, "");
}

TEST(TupledParametersAreFlattened) {
  ProtoWriter entry, alias, rest;
  entry.Int64(2, 0);
  entry.Int64(3, 1);  // element 1 of parameter 0
  alias.Bytes(1, entry.bytes());
  rest.Bytes(8, alias.bytes());
  const auto module =
      ModuleOf(ProgramShape({Tuple({kF32x4, ShapeOf(4, {})})}, kF32x4), {ComputationOf(7, {})}, rest.bytes());
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(module));
  EXPECT(info.parameters_are_tupled);
  EXPECT(!info.result_is_tuple);
  ASSERT_EQ(info.parameters.size(), size_t{2});
  EXPECT(info.aliased_parameters == std::vector<int64_t>{1});
}

TEST(CrossDeviceInstructionsAreFoundAnywhere) {
  const auto shape = ProgramShape({kF32x4}, kF32x4);
  for (const char* opcode : {"all-reduce", "all-reduce-start", "all-gather-done", "reduce-scatter", "all-to-all",
                             "ragged-all-to-all", "collective-permute", "collective-permute-start",
                             "collective-broadcast", "partition-id", "replica-id", "send", "recv-done"}) {
    ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(ModuleOf(shape, {ComputationOf(1, {InstructionOf(opcode)}),
                                                                         ComputationOf(7, {InstructionOf("while")})})));
    EXPECT(info.has_cross_device_instructions);
    EXPECT(info.cross_device_opcodes == std::vector<std::string>{opcode});
  }
  for (const char* opcode : {"add", "reduce", "all-reducer", "copy-start", "custom-call", "sender"}) {
    ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(ModuleOf(shape, {ComputationOf(7, {InstructionOf(opcode)})})));
    EXPECT(!info.has_cross_device_instructions);
  }
  ProtoWriter host_send;
  host_send.Raw(InstructionOf("send"));
  host_send.Bool(47, true);
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(ModuleOf(shape, {ComputationOf(7, {host_send.bytes()})})));
  EXPECT(!info.has_cross_device_instructions);
}

TEST(AliasesAndDonors) {
  const auto entry = [](uint32_t number_field, int64_t number) {
    ProtoWriter out;
    out.Int64(number_field, number);
    return std::move(out).Take();
  };
  ProtoWriter alias, donor, rest;
  alias.Bytes(1, entry(2, 2));
  alias.Bytes(1, entry(2, 0));
  alias.Bytes(1, entry(2, 2));
  donor.Bytes(1, entry(1, 1));
  rest.Bytes(8, alias.bytes());
  rest.Bytes(18, donor.bytes());
  const auto shape = ProgramShape({kF32x4, kF32x4, kF32x4}, kF32x4);
  ASSERT_OK_AND_ASSIGN(const auto info, ReadHloModule(ModuleOf(shape, {ComputationOf(7, {})}, rest.bytes())));
  EXPECT(info.aliased_parameters == (std::vector<int64_t>{0, 2}));
  EXPECT(info.donated_parameters == (std::vector<int64_t>{1}));
  ProtoWriter beyond, bad;
  beyond.Bytes(1, entry(1, 3));
  bad.Bytes(18, beyond.bytes());
  EXPECT(!ReadHloModule(ModuleOf(shape, {ComputationOf(7, {})}, bad.bytes())).ok());
}

TEST(SourceLinePrefersTheUsersFile) {
  const auto shape = ProgramShape({kF32x4}, kF32x4);
  const std::string library = "/usr/lib/python3.11/site-packages/torch/nn/functional.py";
  ASSERT_OK_AND_ASSIGN(
      const auto user,
      ReadHloModule(ModuleOf(shape, {ComputationOf(7, {InstructionOf("add", library, 9), InstructionOf("multiply"),
                                                       InstructionOf("add", "train.py", 42)})})));
  EXPECT_EQ(user.source_location, "train.py:42");
  ASSERT_OK_AND_ASSIGN(const auto other,
                       ReadHloModule(ModuleOf(shape, {ComputationOf(7, {InstructionOf("add", library, 9)})})));
  EXPECT_EQ(other.source_location, library + ":9");
}

TEST(SourceLineThroughStackFrames) {
  const auto pair = [](uint32_t first, int64_t a, uint32_t second, int64_t b) {
    ProtoWriter out;
    out.Int64(first, a);
    out.Int64(second, b);
    return std::move(out).Take();
  };
  ProtoWriter index, rest;
  index.Bytes(1, "/x/site-packages/torch/a.py");
  index.Bytes(1, "/home/me/train.py");
  index.Bytes(3, pair(1, 1, 3, 10));  // a.py:10
  index.Bytes(3, pair(1, 2, 3, 20));  // train.py:20
  index.Bytes(4, pair(1, 1, 2, 2));   // frame 1: a.py:10, called from frame 2
  index.Bytes(4, pair(1, 2, 2, 2));   // frame 2: train.py:20, its own parent, which must not loop
  rest.Bytes(17, index.bytes());
  const auto shape = ProgramShape({kF32x4}, kF32x4);
  ASSERT_OK_AND_ASSIGN(
      const auto info,
      ReadHloModule(ModuleOf(shape, {ComputationOf(7, {InstructionOf("add", "", 0, 1)})}, rest.bytes())));
  EXPECT_EQ(info.source_location, "/home/me/train.py:20");
  ASSERT_OK_AND_ASSIGN(
      const auto none,
      ReadHloModule(ModuleOf(shape, {ComputationOf(7, {InstructionOf("add", "", 0, 99)})}, rest.bytes())));
  EXPECT_EQ(none.source_location, "");
}

TEST(UnsupportedShapesAreNamed) {
  const auto read = [](const std::string& parameter) {
    return ReadHloModule(ModuleOf(ProgramShape({parameter}, kF32x4), {ComputationOf(7, {})})).status();
  };
  EXPECT(read(ShapeOf(17, {})).code() == Code::kUnimplemented);  // a token
  EXPECT_HAS(read(ShapeOf(17, {})).ToString(), "parameter 0");
  EXPECT(read(Tuple({Tuple({kF32x4})})).code() == Code::kUnimplemented);
  EXPECT(read(ShapeOf(11, {-1})).code() == Code::kInvalidArgument);
  EXPECT(read(ShapeOf(11, {int64_t{1} << 40, int64_t{1} << 40})).code() == Code::kInvalidArgument);
  ProtoWriter dynamic;
  dynamic.Raw(kF32x4);
  dynamic.Int64(6, 1);
  EXPECT_HAS(read(dynamic.bytes()).ToString(), "dynamic");
}

TEST(GarbageModulesAreRefused) {
  EXPECT(ReadHloModule("").status().code() == Code::kInvalidArgument);
  EXPECT(!ReadHloModule("module @not_hlo {}").ok());
  EXPECT(!ReadHloModule(ModuleOf(ProgramShape({}, kF32x4), {ComputationOf(8, {})})).ok());
  EXPECT(!ReadHloModule(ModuleOf("", {ComputationOf(7, {})})).ok());
}

TEST(DamagedModulesNeverCrash) {
  ProtoWriter rest, index;
  index.Bytes(1, "train.py");
  rest.Bytes(17, index.bytes());
  const std::string whole = ModuleOf(ProgramShape({Tuple({kF32x4, ShapeOf(16, {8, 8})})}, Tuple({kF32x4})),
                                     {ComputationOf(1, {InstructionOf("all-reduce", "a.py", 1)}),
                                      ComputationOf(7, {InstructionOf("add", "b.py", 2, 1)})},
                                     rest.bytes());
  ASSERT_OK(ReadHloModule(whole));
  int refused = 0;
  for (size_t size = 0; size < whole.size(); ++size) refused += !ReadHloModule(whole.substr(0, size)).ok();
  EXPECT_LT(0, refused);
  std::mt19937 random(20240607);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (int flips = 0; flips < 3; ++flips) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto info = ReadHloModule(damaged);
    if (!info.ok()) continue;
    for (const TensorType& type : info->parameters) EXPECT_OK(type.Validate());
  }
}

}  // namespace
}  // namespace pathways::hlo
