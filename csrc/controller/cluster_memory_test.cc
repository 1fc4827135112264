// Back-pressure as clients and workers see it: which messages wait, and what goes ahead of them.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "csrc/controller/test_support.h"
#include "csrc/testing/test.h"
#include "csrc/wire/file_bodies.h"

namespace pathways::controller {
namespace {

using wire::Type;

// One host with one device of 1000 bytes.
struct Tight : Cluster {
  uint32_t a = 0, b = 0;
  Tight() {
    AddHost("h0", 1, "", 1000);
    a = AddClient("a");
    b = AddClient("b");
  }
  Outputs Put(const std::string& from, uint32_t client, uint64_t n, int64_t floats) {
    const uint64_t id = Id(client, n);
    return Tell(from, wire::Put{id, id, 0, 1, 0, {DType::kF32, {floats}}, ""});
  }
  Outputs Free(const std::string& from, uint32_t client, std::vector<uint64_t> numbers) {
    wire::Free free{0, {}};
    for (const uint64_t n : numbers) free.buffers.push_back(Id(client, n));
    return Tell(from, free);
  }
  // A function of results of so many floats.
  void AddFunction(const std::string& from, uint32_t client, uint64_t n, int64_t floats, uint64_t temp) {
    Register(from, client, n, 0);
    wire::Registered answer;
    answer.function = Id(client, n);
    answer.outputs = {{DType::kF32, {floats}}};
    answer.temp_bytes = temp;
    Tell("w-h0", answer);
  }
  Outputs Run(const std::string& from, uint32_t client, uint64_t n, uint64_t function,
              std::vector<uint64_t> arguments) {
    wire::Run run;
    run.run = Id(client, n);
    run.function = Id(client, function);
    run.first_output = Id(client, n + 1);
    run.output_count = 1;
    run.devices = {0};
    for (const uint64_t argument : arguments) run.arguments.push_back(Id(client, argument));
    return Tell(from, run);
  }
  Outputs Tick(uint64_t later) {
    now += later;
    out.clear();
    state.OnTick(now, out);
    std::erase_if(out, [](const Outgoing& o) { return TypeOf(o) == Type::kHeartbeat; });
    return std::move(out);
  }
};

TEST(APutThatDoesNotFitWaitsAndFreesBehindItGoAhead) {
  Tight c;
  EXPECT_EQ(c.Put("a", c.a, 1, 200).size(), 1u);
  EXPECT_EQ(c.Put("a", c.a, 2, 200).size(), 0u);  // waits
  EXPECT(c.state.StatusJson(c.now).find("\"waiting_for\": \"memory\"") != std::string::npos);
  EXPECT_EQ(c.Put("b", c.b, 1, 25).size(), 1u);  // another client goes on
  Outputs out = c.Free("a", c.a, {1});
  ASSERT_EQ(out.size(), 2u);
  EXPECT(TypeOf(out[0]) == Type::kFree && TypeOf(out[1]) == Type::kPut);
  EXPECT_EQ(Read<wire::Put>(out[1]).buffer, Cluster::Id(c.a, 2));
}

TEST(AFreeStaysBehindWhatNamesItsBuffer) {
  Tight c;
  c.AddFunction("a", c.a, 90, 1, 0);
  c.Put("a", c.a, 1, 100);
  c.Put("a", c.a, 2, 100);
  EXPECT_EQ(c.Put("a", c.a, 3, 140).size(), 0u);
  EXPECT_EQ(c.Run("a", c.a, 50, 90, {1}).size(), 0u);
  EXPECT_EQ(c.Free("a", c.a, {1, 51}).size(), 0u);  // an argument and the result of the run that waits
  Outputs out = c.Free("a", c.a, {2, 1});
  ASSERT_EQ(out.size(), 5u);
  EXPECT(Read<wire::Free>(out[0]).buffers == std::vector<uint64_t>{Cluster::Id(c.a, 2)});
  EXPECT(TypeOf(out[1]) == Type::kPut && TypeOf(out[2]) == Type::kRun);
  EXPECT(Read<wire::Free>(out[3]).buffers == (std::vector<uint64_t>{Cluster::Id(c.a, 1), Cluster::Id(c.a, 51)}));
  EXPECT(Read<wire::Free>(out[4]).buffers == std::vector<uint64_t>{Cluster::Id(c.a, 1)});
}

TEST(AFreeStaysBehindFilesThatNeedItsBuffer) {
  Tight c;
  c.Put("a", c.a, 1, 80);
  c.Put("a", c.a, 2, 80);
  c.Put("a", c.a, 3, 80);
  EXPECT_EQ(c.Put("a", c.a, 4, 40).size(), 0u);
  wire::Save save;
  save.request = Cluster::Id(c.a, 50);
  save.shards = {{Cluster::Id(c.a, 1), 0, {}}};
  EXPECT_EQ(c.Tell("a", save).size(), 0u);
  wire::Load load;
  load.request = Cluster::Id(c.a, 51);
  load.shards = {{Cluster::Id(c.a, 2), Cluster::Id(c.a, 2), {DType::kF32, {80}}, {}}};
  EXPECT_EQ(c.Tell("a", load).size(), 0u);
  EXPECT_EQ(c.Free("a", c.a, {1}).size(), 0u);
  EXPECT_EQ(c.Free("a", c.a, {2}).size(), 0u);
  const Outputs out = c.Free("a", c.a, {3});  // makes room for the head
  std::vector<Type> types;
  for (const Outgoing& o : out) types.push_back(TypeOf(o));
  EXPECT(types == (std::vector<Type>{Type::kFree, Type::kPut, Type::kSave, Type::kLoad, Type::kFree, Type::kFree}));
}

TEST(WhatCanNeverFitGoesToItsWorkerWhichRefusesIt) {
  Tight c;
  EXPECT_EQ(c.Put("a", c.a, 1, 100).size(), 1u);
  EXPECT_EQ(c.Put("a", c.a, 2, 251).size(), 1u);
  EXPECT_EQ(c.Put("a", c.a, 3, 150).size(), 1u);  // it took nothing
}

TEST(ARunWaitsForTheScratchOfAnother) {
  Tight c;
  c.AddFunction("a", c.a, 90, 1, 600);
  c.AddFunction("b", c.b, 90, 1, 600);
  EXPECT_EQ(c.Run("a", c.a, 10, 90, {}).size(), 1u);
  EXPECT_EQ(c.Run("b", c.b, 10, 90, {}).size(), 0u);
  EXPECT_EQ(c.Tick(1000).size(), 0u);  // nothing to spill: it only has to wait
  Outputs out = c.Done("h0", {Cluster::Id(c.a, 10)});
  ASSERT_EQ(out.size(), 2u);
  EXPECT(TypeOf(out[0]) == Type::kDone && TypeOf(out[1]) == Type::kRun);
}

TEST(IdleBuffersAreSpilledForTheOldestAndComeBackWhenNamed) {
  Tight c;
  c.AddFunction("b", c.b, 90, 10, 0);
  c.Put("b", c.b, 1, 200);
  EXPECT_EQ(c.Put("a", c.a, 1, 150).size(), 0u);
  EXPECT_EQ(c.Tick(100).size(), 0u);
  Outputs out = c.Tick(150);
  ASSERT_EQ(out.size(), 1u);
  EXPECT(TypeOf(out[0]) == Type::kSpill && out[0].to == "w-h0");
  EXPECT(Read<wire::Spill>(out[0]).buffers == std::vector<uint64_t>{Cluster::Id(c.b, 1)});
  EXPECT_EQ(c.Run("b", c.b, 10, 90, {1}).size(), 0u);  // its argument is on its way out
  out = c.Tell("w-h0", wire::Spill{{Cluster::Id(c.b, 1)}});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Read<wire::Put>(out[0]).buffer, Cluster::Id(c.a, 1));
  EXPECT(c.state.StatusJson(c.now).find("\"staged_bytes\": 800") != std::string::npos);
  out = c.Free("a", c.a, {1});
  ASSERT_EQ(out.size(), 3u);
  EXPECT(TypeOf(out[0]) == Type::kFree);
  EXPECT(TypeOf(out[1]) == Type::kRestore);
  EXPECT(Read<wire::Restore>(out[1]).buffers == std::vector<uint64_t>{Cluster::Id(c.b, 1)});
  EXPECT(TypeOf(out[2]) == Type::kRun);
}

TEST(AClientThatWaitsForMemoryAndGoesAwayLeavesNothing) {
  Tight c;
  c.Put("b", c.b, 1, 200);
  EXPECT_EQ(c.Put("a", c.a, 1, 150).size(), 0u);
  c.out.clear();
  c.state.OnDisconnected("a", "killed", c.out);
  EXPECT_EQ(c.Tick(1000).size(), 0u);
  // The other way round: what its buffers kept out goes on.
  c.AddClient("d");
  EXPECT_EQ(c.Put("d", 3, 1, 150).size(), 0u);
  c.out.clear();
  c.state.OnDisconnected("b", "killed", c.out);
  ASSERT_EQ(c.out.size(), 2u);
  EXPECT(TypeOf(c.out[0]) == Type::kOwnerGone && TypeOf(c.out[1]) == Type::kPut);
}

TEST(ALostHostEndsTheWait) {
  Tight c;
  c.Put("b", c.b, 1, 200);
  EXPECT_EQ(c.Put("a", c.a, 1, 150).size(), 0u);
  c.out.clear();
  c.state.OnDisconnected("w-h0", "killed", c.out);
  bool told = false;
  for (const Outgoing& outgoing : c.out) told = told || (outgoing.to == "a" && TypeOf(outgoing) == Type::kBufferFailed);
  EXPECT(told);
}

TEST(AProgramsPeakIsHeldWhileItRuns) {
  Tight c;
  c.AddFunction("a", c.a, 90, 1, 0);
  c.Put("a", c.a, 1, 1);
  c.Tell("a", c.Plan(c.a, 80, 0, {0}, 90));
  wire::PlanReady ready;
  ready.program = Cluster::Id(c.a, 80);
  ready.peak_bytes = {700};
  ready.result_bytes = {4};
  c.Tell("w-h0", ready);
  EXPECT_EQ(c.Tell("a", Cluster::ProgramRun(c.a, 10, 80)).size(), 1u);
  EXPECT_EQ(c.Put("b", c.b, 1, 100).size(), 0u);
  EXPECT_EQ(c.Tell("a", Cluster::ProgramRun(c.a, 20, 80)).size(), 0u);
  Outputs out = c.Done("h0", {Cluster::Id(c.a, 10)});
  ASSERT_EQ(out.size(), 2u);  // the put was first; the second run still waits
  EXPECT(TypeOf(out[1]) == Type::kPut);
  out = c.Free("b", c.b, {1});
  ASSERT_EQ(out.size(), 2u);
  EXPECT(TypeOf(out[1]) == Type::kRunProgram);
}

// The books of a host cost little on the way of every run: a submission, its end and the free of its result.
TEST(KeepingTheBooksCostsLittle) {
  const auto best_ns = [](int64_t memory) {
    Cluster c;
    c.AddHost("h0", 1, "", memory);
    const uint32_t a = c.AddClient("a");
    c.Register("a", a, 1, 0);
    wire::Registered answer;
    answer.function = Cluster::Id(a, 1);
    answer.outputs = {{DType::kF32, {}}};
    c.Tell("w-h0", answer);
    c.Tell("a", wire::Put{Cluster::Id(a, 2), Cluster::Id(a, 2), 0, 1, 0, {DType::kF32, {}}, "abcd"});
    uint64_t id = 10;
    double best = 1e9;
    constexpr int kRuns = 2000;
    for (int round = 0; round < 20; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kRuns; ++i, id += 2) {
        wire::Run run;
        run.run = Cluster::Id(a, id);
        run.function = Cluster::Id(a, 1);
        run.first_output = Cluster::Id(a, id + 1);
        run.output_count = 1;
        run.devices = {0};
        run.arguments = {Cluster::Id(a, 2)};
        c.Tell("a", run);
        c.Done("h0", {run.run}, 1);
        c.Tell("a", wire::Free{0, {run.first_output}});
      }
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count() / kRuns);
    }
    return best;
  };
  const double without = best_ns(0), with = best_ns(int64_t{1} << 40);
  std::printf("  submit, end and free: %.0f ns, with the books %.0f ns\n", without, with);
  EXPECT(with < 2 * without + 1000);
}

}  // namespace
}  // namespace pathways::controller
