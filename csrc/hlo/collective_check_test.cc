#include "csrc/hlo/collective_check.h"

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

struct Named {
  std::vector<std::vector<int64_t>> groups = {};
  std::vector<std::pair<int64_t, int64_t>> pairs = {};
  bool channel = false, global_ids = false;
};

std::string FieldsOf(const Named& named) {
  ProtoWriter out;
  for (const auto& group : named.groups) {
    ProtoWriter ids;
    for (const int64_t id : group) ids.Int64(1, id);
    out.Bytes(instruction_field::kReplicaGroups, ids.bytes());
  }
  for (const auto& [from, to] : named.pairs) {
    ProtoWriter pair;
    pair.Int64(1, from);
    pair.Int64(2, to);
    out.Bytes(instruction_field::kSourceTargetPairs, pair.bytes());
  }
  if (named.channel) out.Int64(instruction_field::kChannelId, 1);
  if (named.global_ids) out.Bool(instruction_field::kUseGlobalDeviceIds, true);
  out.Int64(instruction_field::kCalledComputationIds, HloBuilder::kReduction);
  return std::move(out).Take();
}

std::string ModuleOf(const std::string& opcode, const Named& named) {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8}));
  hlo.Add(opcode, F32({8}), {x}, FieldsOf(named));
  return hlo.Build("meets");
}

bool Passes(const std::string& opcode, const Named& named, int64_t replicas, int64_t partitions) {
  return CheckCollectives(ModuleOf(opcode, named), replicas, partitions).ok();
}

TEST(CollectivesWithGroupsStayAmongTheirIds) {
  for (const std::string opcode :
       {"all-reduce", "all-gather", "reduce-scatter", "all-reduce-start", "all-gather-start"}) {
    EXPECT(Passes(opcode, {}, 1, 1));
    EXPECT(Passes(opcode, {.groups = {{0}}}, 1, 4));
    EXPECT(Passes(opcode, {.groups = {{0, 1}}}, 2, 1));
    EXPECT(!Passes(opcode, {.groups = {{0, 1}}}, 1, 1));
    EXPECT(!Passes(opcode, {.groups = {{0, 1}}}, 1, 2));                   // of replicas
    EXPECT(!Passes(opcode, {.groups = {{0, 1}}, .channel = true}, 1, 2));  // of replicas, too
    const Named global = {.groups = {{0, 1}, {2, 3}}, .channel = true, .global_ids = true};
    EXPECT(Passes(opcode, global, 1, 4));
    EXPECT(Passes(opcode, global, 2, 2));
    EXPECT(!Passes(opcode, global, 1, 2));
    EXPECT(!Passes(opcode, global, 3, 1));
  }
  for (const std::string opcode : {"all-to-all", "collective-broadcast", "ragged-all-to-all"}) {
    EXPECT(Passes(opcode, {.groups = {{0, 1}}, .channel = true}, 1, 2));
    EXPECT(!Passes(opcode, {.groups = {{0, 1}}, .channel = true}, 2, 1));
    EXPECT(!Passes(opcode, {.groups = {{0, 1}}}, 1, 2));
    EXPECT(Passes(opcode, {.groups = {{0, 1}}}, 2, 1));
  }
  EXPECT(Passes("add", {.groups = {{0, 9}}}, 1, 1));  // no collective
}

TEST(PairsStayAmongTheirIds) {
  for (const std::string opcode : {"collective-permute", "collective-permute-start"}) {
    EXPECT(Passes(opcode, {.pairs = {{0, 1}, {1, 0}}, .channel = true}, 1, 2));
    EXPECT(!Passes(opcode, {.pairs = {{0, 1}, {1, 2}}, .channel = true}, 1, 2));
    EXPECT(!Passes(opcode, {.pairs = {{0, 1}}}, 1, 2));
  }
}

TEST(GroupsInOtherFormsAreRead) {
  ProtoWriter iota, list;
  iota.Int64(1, 1);
  iota.Int64(2, 4);
  iota.Int64(3, 4);
  iota.Int64(4, 0);
  list.Bytes(2, iota.bytes());
  ProtoWriter fields;
  fields.Bytes(instruction_field::kCollectiveDeviceList, list.bytes());
  fields.Int64(instruction_field::kChannelId, 1);
  fields.Bool(instruction_field::kUseGlobalDeviceIds, true);
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8}));
  hlo.Add("all-gather", F32({32}), {x}, fields.bytes());
  const std::string module = hlo.Build("gathers");
  EXPECT_OK(CheckCollectives(module, 1, 4));
  EXPECT_HAS(CheckCollectives(module, 1, 2).ToString(), "got 3");
}

TEST(TheErrorSaysWhatIsWrongAndWhatToDo) {
  const std::string text = CheckCollectives(ModuleOf("all-reduce", {.groups = {{0, 1}}}), 1, 2).ToString();
  EXPECT_HAS(text, "all-reduce 'all-reduce.2' names replicas that the computation does not run on");
  EXPECT_HAS(text, "1 replica x 2 partitions: expected ids from 0 to 0, got 1");
  EXPECT_HAS(text, "use_global_device_ids");
  EXPECT(!CheckCollectives("not a module", 1, 1).ok());
  EXPECT(!CheckCollectives("", 0, 1).ok());
}

TEST(MlirSaysWhatItWasMadeFor) {
  const std::string_view four = "module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} { }";
  EXPECT_HAS(CheckMlirCounts(four, 1, 2).ToString(), "made for 1 replica x 2 partitions");
  EXPECT_HAS(CheckMlirCounts(four, 1, 2).ToString(), "attributes say 1 replica x 4 partitions");
  EXPECT_OK(CheckMlirCounts(four, 1, 4));  // nothing in it meets another replica
  const std::string meets = std::string(four) + "stablehlo.all_reduce";
  EXPECT(!CheckMlirCounts(meets, 1, 4).ok());
  EXPECT_OK(CheckMlirCounts(meets, 2, 4));
  EXPECT_OK(CheckMlirCounts("module @m { }", 3, 5));
  EXPECT_OK(CheckMlirCounts("mhlo.num_partitions", 3, 5));  // in bytecode there is no number behind the name
}

TEST(AnAllReduceOfSeveralOperandsIsSplit) {
  ASSERT_OK_AND_ASSIGN(const std::string split, SplitAllReduces(TwoReducedAtOnce()));
  EXPECT(split != TwoReducedAtOnce());
  ASSERT_OK_AND_ASSIGN(const std::string again, SplitAllReduces(split));
  EXPECT(split == again);
  const std::string single = ModuleOf("all-reduce", {});
  ASSERT_OK_AND_ASSIGN(const std::string same, SplitAllReduces(single));
  EXPECT(same == single);
}

}  // namespace
}  // namespace pathways::hlo
