// Golden bytes of the wire, and every decoder against bytes that are wrong in every way.
#include <random>

#include "csrc/testing/test.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/island_bodies.h"
#include "csrc/wire/pipeline_bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::wire {
namespace {

std::string Hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

Run SampleRun() {
  Run run;
  run.run = (uint64_t{1} << kClientShift) | 7;
  run.function = (uint64_t{1} << kClientShift) | 2;
  run.first_output = (uint64_t{1} << kClientShift) | 8;
  run.output_count = 1;
  run.devices = {3};
  run.arguments = {(uint64_t{1} << kClientShift) | 5, kAssembledBit | 0};
  run.assembled = {(uint64_t{1} << kClientShift) | 6, 0};
  run.donated = {1};
  return run;
}

// The worked example of docs/protocol.md. If this changes, so must kProtocolVersion.
TEST(GoldenRun) {
  EXPECT_EQ(Hex(Encode(SampleRun(), 9)),
            std::string("505759310d000b0009000000000000005400000000000000"  // header: PWY1, 8, RUN, 9, 84 bytes
                        "0700000000000100"                                  // run
                        "0200000000000100"                                  // function
                        "0800000000000100"                                  // first output
                        "01000000"                                          // one output
                        "0100000003000000"                                  // devices: 3
                        "0200000005000000000001000000000000000080"          // arguments
                        "0200000006000000000001000000000000000000"          // assembled
                        "0100000001000000"));                               // donated: 1
}

TEST(GoldenFree) {
  EXPECT_EQ(Hex(Encode(Free{2, {1, 258}})), std::string("505759310d000f0000000000000000001800000000000000"
                                                        "02000000"
                                                        "02000000"
                                                        "0100000000000000"
                                                        "0201000000000000"));
}

TEST(GoldenLinks) {
  EXPECT_EQ(Hex(Encode(PeerHello{"c1", "node-1", 5, 9, 7, 8, 1})),
            std::string("505759310d00190000000000000000003100000000000000"
                        "020000006331060000006e6f64652d31"  // cluster, machine
                        "05000000000000000900000000000000"  // number, other
                        "0700000000000000080000000000000001"));
  EXPECT_EQ(Hex(Encode(PeerSeen{5, 8, 0})), std::string("505759310d00320000000000000000001100000000000000"
                                                        "0500000000000000080000000000000000"));
  EXPECT_EQ(Hex(Encode(TransferFailed{1, (uint64_t{1} << kClientShift) | 6, DeadlineExceeded("61 s")})),
            std::string("505759310d00330000000000000000001800000000000000"
                        "010000000600000000000100"  // host, key
                        "040000000400000036312073"));
}

TEST(GoldenRotate) {
  EXPECT_EQ(Hex(Encode(Rotate{"pw1w-00"})), std::string("505759310d00340000000000000000000b00000000000000"
                                                        "07000000707731772d3030"));
}

TEST(GoldenCollectives) {
  EXPECT_EQ(Hex(Encode(CollectiveChunk{1, 2, 3, 4, 5, 6, 7, 8, 9, 1})),
            std::string("505759310d002500000000000000000034000000"
                        "00000000"
                        "010000000200000003000000"          // source host and device, target device
                        "040000000000000005000000"          // sequence, node
                        "06000000000000000700000000000000"  // offset, total
                        "080000000900000001000000"));       // number, ordinal, round
  EXPECT_EQ(Hex(Encode(CollectiveTaken{1, 2, 3, 4})), std::string("505759310d002600000000000000000010000000"
                                                                  "00000000"
                                                                  "01000000020000000300000004000000"));
}

TEST(GoldenFeed) {
  EXPECT_EQ(Hex(Encode(Feed{1, 2, 3, 4, {5}, "ab"})),
            std::string("505759310d002e0000000000000000002a000000"
                        "00000000"
                        "01000000000000000200000000000000"  // request, pipeline
                        "0300000004000000"                  // host, worker
                        "010000000500000000000000"          // keys
                        "020000006162"));                   // what
}

TEST(GoldenFiles) {
  EXPECT_EQ(Hex(Encode(Save{1, 2, "/a", 24, 1, "h", {{3, 0, {{0, 16, {4}, {1}, {0}, {2}}}}}})),
            std::string("505759310d002a00000000000000000070000000"
                        "00000000"
                        "0100000000000000"                  // request
                        "02000000020000002f61"              // host, path
                        "1800000000000000010100000068"      // bytes of the file, to be made, header
                        "01000000030000000000000000000000"  // one shard: buffer 3, shard 0
                        "0100000000000000"                  // one box, in file 0
                        "1000000000000000"                  // at byte 16
                        "010000000400000000000000"          // of a tensor of 4
                        "010000000100000000000000"          // from element 1
                        "010000000000000000000000"          // of the shard from element 0
                        "010000000200000000000000"));       // 2 elements
  EXPECT_EQ(Hex(Encode(Stored{1, 2, OkStatus(), 8, 9, 10})), std::string("505759310d002c00000000000000000028000000"
                                                                         "00000000"
                                                                         "0100000000000000020000000000000000000000"
                                                                         "080000000000000009000000000000000a000000"));
}

TEST(GoldenBytesOfWelcome) {
  EXPECT_EQ(Hex(Encode(Welcome{3, "c", 500, 4000, {}, 9, {{2, "c/3/9/0a"}}, "", 7, "s"})),
            std::string("505759310d0002000000000000000000420000"
                        "0000000000"
                        "03000000"          // peer
                        "0100000063"        // cluster
                        "f4010000a00f0000"  // heartbeats
                        "00000000"          // hosts
                        "0900000000000000"  // session
                        "0100000002000000"  // one identity, at host 2
                        "08000000632f332f392f3061"
                        "00000000"          // data_key: a client has none
                        "0700000000000000"  // the controller's process
                        "0100000073"));     // and its space
}

TEST(GoldenHeartbeatAndNumberOnALine) {
  EXPECT_EQ(Hex(Encode(Heartbeat{1, 2, 3, 1, 0, 4, 5, "0123456789abcdef", 6})),
            std::string("505759310d00050000000000000000004600000000000000"
                        "01000000000000000200000000000000"          // live buffers and bytes
                        "03000000000000000100"                      // received 3; send again; it hears something
                        "04000000000000000500000000000000"          // line, count
                        "1000000030313233343536373839616263646566"  // secret
                        "0600000000000000"));                       // its engine is still for 6 ms
  std::string frame = Encode(Free{2, {}});
  PatchNumber(frame, 5);
  EXPECT_EQ(Hex(frame), std::string("505759310d000f0000000000000000000800000005000080"
                                    "0200000000000000"));
  EXPECT_EQ(DecodeHead(frame)->header.number, LineNumber(5));
  frame[23] = 0;  // the top bit
  EXPECT(DecodeHead(frame).status().message().find("on its line") != std::string_view::npos);
}

TEST(HeaderRefusesWithTheReason) {
  const std::string good = Encode(SampleRun());
  ASSERT_OK(DecodeHead(good).status());
  EXPECT(DecodeHead(good.substr(0, 23)).status().message().find("24 bytes") != std::string_view::npos);
  std::string bad = good;
  bad[0] = 'X';
  EXPECT(DecodeHead(bad).status().message().find("magic") != std::string_view::npos);
  bad = good;
  bad[4] = static_cast<char>(kProtocolVersion + 1);
  EXPECT_EQ(DecodeHead(bad).status().code(), Code::kFailedPrecondition);
  EXPECT(DecodeHead(bad).status().message().find("got " + std::to_string(kProtocolVersion + 1)) !=
         std::string_view::npos);
  bad = good;
  bad[6] = 99;
  EXPECT(DecodeHead(bad).status().message().find("number 99") != std::string_view::npos);
  bad = good + "x";
  EXPECT(!DecodeHead(bad).ok());
  bad = good;
  bad[20] = 1;
  EXPECT(!DecodeHead(bad).ok());
}

TEST(ABodyOfMoreThan16MiBIsRefusedForThat) {
  EXPECT_OK(DecodeHead(EncodeHead(Type::kRun, 0, std::string(kMaxBodyBytes, 'x'))).status());
  const std::string more = EncodeHead(Type::kRun, 0, std::string(kMaxBodyBytes + 1, 'x'));
  EXPECT_HAS(DecodeHead(more).status().message(), "a body of at most 16 MiB, got 16777217 bytes");
}

TEST(PatchSequenceChangesNothingElse) {
  std::string frame = Encode(SampleRun(), 0);
  PatchSequence(frame, 77);
  EXPECT_EQ(frame, Encode(SampleRun(), 77));
}

template <typename Body>
void Fuzz(const Body& sample, std::mt19937_64& random) {
  const std::string frame = Encode(sample, 1);
  const std::string body = frame.substr(kHeaderBytes);
  ASSERT_OK(Decode<Body>(body).status());
  EXPECT_EQ(Encode(*Decode<Body>(body), 1), frame);
  // Every truncation and an extra byte are refused.
  for (size_t size = 0; size < body.size(); ++size) EXPECT(!Decode<Body>(body.substr(0, size)).ok());
  EXPECT(!Decode<Body>(body + '\0').ok());
  // Flipped, overwritten and random bytes: decoded or refused with a reason, never a crash. What decodes encodes back
  // to what was read.
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = body;
    if (round % 2 == 0 && !bytes.empty()) {
      for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] ^= 1 << (random() % 8);
    } else {
      bytes.resize(random() % (body.size() + 16));
      for (char& c : bytes) c = static_cast<char>(random());
    }
    Result<Body> decoded = Decode<Body>(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(Encode(*decoded).substr(kHeaderBytes), bytes);
    } else {
      EXPECT(!decoded.status().message().empty());
    }
  }
}

TEST(EveryDecoderSurvivesGarbage) {
  std::mt19937_64 random(20240611);
  DeviceDescription device{1, "cpu", 1 << 30, 5};
  Hello hello{Role::kWorker, "0.1.0", "host0", 42, "m", "ipc:///x", "cpu", "v", "", {device, device}, 2, -1};
  HostDescription host;
  host.name = "host0";
  host.devices = {device};
  const TensorType type{DType::kF32, {2, 3}};
  Fuzz(hello, random);
  Fuzz(Welcome{1, "c", 500, 4000, {host, host}, 7, {{0, "c/1/7/0"}}, "key"}, random);
  Fuzz(Reject{Unavailable("no")}, random);
  Fuzz(Topology{{host}, {{1, "w/a/2/0a"}}}, random);
  Fuzz(Heartbeat{1, 2}, random);
  Fuzz(Goodbye{"bye"}, random);
  Fuzz(Register{1, "f", "hlo", "a.py:1", 1, 4, 0, 1, {0, 1, 2, 3}}, random);
  Fuzz(Registered{1, 0, OkStatus(), {type, type}, 1, 2, 3, "sharding", 40}, random);
  Fuzz(Unregister{{1, 2, 3}, {4}}, random);
  Fuzz(Put{1, 1, 0, 1, 0, type, std::string(24, 'x')}, random);
  Fuzz(SampleRun(), random);
  Fuzz(Done{{{1, 0, 5, OkStatus()}, {2, 0, 5, Internal("x")}}}, random);
  Fuzz(Fetch{1, 2, 0, 0, 1}, random);
  Fuzz(Fetched{1, OkStatus(), 4, "abcd"}, random);
  Fuzz(Free{0, {1, 2}}, random);
  Fuzz(Copy{1, 0, 0, 2, 1, type}, random);
  Fuzz(Expect{1, 0, 1, type}, random);
  Fuzz(BufferFailed{1, Internal("x")}, random);
  Fuzz(HostLost{1, "killed"}, random);
  Fuzz(OwnerGone{3, 7}, random);
  Fuzz(Data{1, 0, 4, 8, "/ptpathways-c-1-0", 0, 9, OkStatus()}, random);
  Fuzz(Release{1, 2, OkStatus(), 1}, random);
  Fuzz(Resume{1, Cancelled("x")}, random);
  Fuzz(Query{1, QueryKind::kCostAnalysis, 2, 0}, random);
  Fuzz(Reply{1, OkStatus(), "hlo", {Property{"flops", 2, "", 0, 1.5}}}, random);
  Fuzz(PeerHello{"c", "m", 1, 2, 3, 4, 1}, random);
  Fuzz(PeerSeen{1, 2, 1}, random);
  Fuzz(TransferFailed{1, 2, Unavailable("no word of it")}, random);
  Fuzz(Rotate{"pw1w-00"}, random);
  PlanStep execute{StepKind::kExecute, 0, 3, 7, {0, 1}, {2}, {1}, 0, 0, 0, 0, {}, {}};
  PlanStep receive{StepKind::kReceive, 1, 0, 0, {}, {3}, {}, 0, 0, 0, 0, {}, {{5, 1, {{0, 1}, {2, 2}}}}};
  Fuzz(RegisterPlan{1, 0, "p", "a.py:3", 1, {"n"}, {{type, {0}, {4}}}, {{0, 2}}, {{kNoSlot, 1}}, {execute, receive}},
       random);
  Fuzz(PlanReady{1, 0, OkStatus(), {4}, {8}}, random);
  Fuzz(RunProgram{1, 2, 3, 1, 9, {4, kAssembledBit}, {5, 0}, {0}}, random);
  Fuzz(RunInPlace{1, 2, 9, 3, {0, kNoPlace}, {0, kNoPlace}, {0}, {5}, {6}, {kAssembledBit}, 7, 1, {8, 0}, {0}}, random);
  Fuzz(RequestSlice{1, 8, "i", "cpu", 1, 2}, random);
  Fuzz(SliceGranted{1, OkStatus(), 2, {0, 1}}, random);
  Fuzz(ReleaseSlice{{2}}, random);
  Fuzz(Spill{{1}}, random);
  Fuzz(Restore{{1}}, random);
  Fuzz(Abort{1, Unavailable("host 2")}, random);
  Fuzz(Stalled{{{1, 2, 3, 4, 5, "f"}}}, random);
  Fuzz(CollectiveChunk{1, 0, 2, 7, 8, 4096, 1 << 20, 3, 4, 1}, random);
  Fuzz(CollectiveTaken{1, 0, 2, 4}, random);
  const FileBox box{1, 16, {4, 2}, {1, 0}, {0, 0}, {2, 2}};
  Fuzz(Save{1, 2, "/a", 24, 1, "h", {{3, 0, {box, box}}}}, random);
  Fuzz(Load{1, 2, {{"/a", 24, 1, 5}}, {{3, 4, type, {box}}}}, random);
  Fuzz(Stored{1, 2, OkStatus(), 8, 9, 10}, random);
  Fuzz(IslandJoin{"0.1.0", "host0", 42, "pod", 4, "cuda", "v1", 60000}, random);
  Fuzz(KeyValue{1, KeyValueKind::kGet, "k", "v", 1000}, random);
  Fuzz(IslandAnswer{1, OkStatus(), 2, "v"}, random);
  Fuzz(OpenPipeline{1, 2, 0, 1, 120000, 300000, "a.py:3"}, random);
  Fuzz(Feed{1, 2, 0, 1, {3, 4}, "{}"}, random);
  Fuzz(ClosePipeline{1, 0}, random);
}

TEST(ForgedCountsCostNoMemory) {
  // A body that claims 2^32 - 1 devices in a few bytes.
  std::string body = Encode(Welcome{}).substr(kHeaderBytes);
  body.replace(body.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT(!Decode<Welcome>(body).ok());
  std::string run = Encode(SampleRun()).substr(kHeaderBytes);
  run.replace(28, 4, "\xff\xff\xff\x7f");
  EXPECT(!Decode<Run>(run).ok());
}

}  // namespace
}  // namespace pathways::wire
