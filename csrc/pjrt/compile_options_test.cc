#include "csrc/pjrt/compile_options.h"

#include "csrc/base/proto.h"
#include "csrc/testing/test.h"

namespace pathways::pjrt {
namespace {

// Field numbers as the public proto has them, written out so that a wrong table is noticed.
constexpr uint32_t kBuildOptions = 3, kPortable = 4, kProfileVersion = 5, kEnvOverrides = 7;
constexpr uint32_t kDebugOptions = 3, kReplicas = 4, kPartitions = 5, kSpmd = 6, kAssignment = 9, kShardy = 19;

std::string Options(int64_t replicas, int64_t partitions, bool with_unknown) {
  ProtoWriter build;
  build.Bytes(kDebugOptions, "debug options");
  build.Int64(kReplicas, replicas);
  build.Int64(kPartitions, partitions);
  build.Bool(kShardy, true);
  if (with_unknown) build.Bytes(77, "a field of the future");
  ProtoWriter top;
  top.Int64(kProfileVersion, 9);
  top.Bytes(kBuildOptions, build.bytes());
  top.Bytes(kEnvOverrides, "overrides");
  if (with_unknown) top.Int64(99, 12345);
  return std::move(top).Take();
}

// How often `part` occurs in `text`.
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(NothingGivenMeansOneDevice) {
  ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(""));
  EXPECT_EQ(info.num_replicas, 1);
  EXPECT_EQ(info.num_partitions, 1);
  EXPECT(!info.use_spmd_partitioning);
  EXPECT(!info.compile_portable_executable);
  EXPECT(!info.device_assignment.has_value());
}

TEST(ReadsCounts) {
  ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(Options(2, 4, true)));
  EXPECT_EQ(info.num_replicas, 2);
  EXPECT_EQ(info.num_partitions, 4);
  EXPECT(info.use_shardy_partitioner);
}

TEST(ForDevicesRoundTrips) {
  const int64_t ids[] = {10, 11, 12, 13, 14, 15};
  ASSERT_OK_AND_ASSIGN(const std::string out, ForDevices(Options(1, 1, true), 2, 3, ids));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(out));
  EXPECT_EQ(info.num_replicas, 2);
  EXPECT_EQ(info.num_partitions, 3);
  EXPECT(info.use_spmd_partitioning);
  EXPECT(!info.compile_portable_executable);
  ASSERT(info.device_assignment.has_value());
  EXPECT(info.device_assignment->device_ids == std::vector<int64_t>(ids, ids + 6));
  EXPECT_EQ(info.device_assignment->at(1, 0), 13);
  // In the proto a "computation" is a partition, holding one id per replica: partition 0 has devices 10 and 13.
  EXPECT_HAS(out, std::string("\x1a\x04\x08\x0a\x08\x0d"));
}

TEST(OtherFieldsSurviveByteForByte) {
  const int64_t ids[] = {0, 1};
  const std::string before = Options(1, 1, true);
  ASSERT_OK_AND_ASSIGN(const std::string many, ForDevices(before, 1, 2, ids));
  ASSERT_OK_AND_ASSIGN(const std::string one, ForOneDevice(many));
  for (const std::string& out : {many, one}) {
    for (const char* text : {"debug options", "overrides", "a field of the future"}) EXPECT_EQ(Count(out, text), 1);
    EXPECT_HAS(out, std::string("\x28\x09"));          // profile_version: 9
    EXPECT_HAS(out, std::string("\x98\x06\xb9\x60"));  // field 99: 12345
    ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(out));
    EXPECT(info.use_shardy_partitioner);
  }
}

TEST(ForOneDeviceForgetsTheAssignment) {
  const int64_t ids[] = {5, 6, 7, 8};
  ASSERT_OK_AND_ASSIGN(const std::string many, ForDevices("", 4, 1, ids));
  ASSERT_OK_AND_ASSIGN(const std::string one, ForOneDevice(many));
  ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(one));
  EXPECT_EQ(info.num_replicas, 1);
  EXPECT_EQ(info.num_partitions, 1);
  EXPECT(info.compile_portable_executable);
  EXPECT(!info.device_assignment.has_value());
  ASSERT_OK_AND_ASSIGN(const std::string twice, ForOneDevice(one));
  EXPECT_EQ(twice, one);
}

TEST(SplitBuildOptionsMerge) {
  ProtoWriter first, second, top;
  first.Int64(kReplicas, 2);
  second.Int64(kPartitions, 3);
  second.Bool(kSpmd, true);
  top.Bytes(kBuildOptions, first.bytes());
  top.Bool(kPortable, true);
  top.Bytes(kBuildOptions, second.bytes());
  ASSERT_OK_AND_ASSIGN(const auto info, ReadCompileOptions(top.bytes()));
  EXPECT_EQ(info.num_replicas, 2);
  EXPECT_EQ(info.num_partitions, 3);
  EXPECT(info.use_spmd_partitioning);
  EXPECT(info.compile_portable_executable);
}

TEST(GarbageOptionsAreRefused) {
  EXPECT(!ReadCompileOptions("\xff\xff\xff").ok());
  EXPECT(!ForOneDevice("\x1a\x05 ").ok());
  ProtoWriter broken_build;
  broken_build.Bytes(kBuildOptions, "\xff\xff");
  EXPECT(!ReadCompileOptions(broken_build.bytes()).ok());
  EXPECT(!ForOneDevice(broken_build.bytes()).ok());
  EXPECT(!ReadCompileOptions(Options(-1, 1, false)).ok());
  EXPECT(!ReadCompileOptions(Options(1, int64_t{1} << 40, false)).ok());
  // An assignment that promises more ids than it has.
  ProtoWriter assignment, build, top;
  assignment.Int64(1, 1 << 20);
  assignment.Int64(2, 1 << 20);
  build.Bytes(kAssignment, assignment.bytes());
  top.Bytes(kBuildOptions, build.bytes());
  EXPECT(!ReadCompileOptions(top.bytes()).ok());
  const int64_t id[] = {0};
  EXPECT(!ForDevices("", 1, 2, id).ok());
  EXPECT(!ForDevices("", 0, 1, {}).ok());
}

}  // namespace
}  // namespace pathways::pjrt
