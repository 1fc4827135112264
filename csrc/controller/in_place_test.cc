// Runs in place as the controller sees them: what goes on to the workers, and what the books say.
#include <algorithm>

#include "csrc/controller/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

using wire::Type;

// One host with one device of 1000 bytes, and a program that makes 25 floats out of 25 floats, overwriting them.
struct InPlace : Cluster {
  uint32_t a = 0, b = 0;
  explicit InPlace(bool overwrites = true) {
    AddHost("h0", 1, "", 1000);
    a = AddClient("a");
    b = AddClient("b");
    Register("a", a, 1, 0);
    Registered("h0", a, 1);
    wire::RegisterPlan plan = Plan(a, 2, 0, {0}, 1);
    for (wire::PlanSlot& slot : plan.slots) slot.type = {DType::kF32, {25}};
    if (overwrites) plan.steps[0].donated = {0};
    Tell("a", plan);
    wire::PlanReady ready;
    ready.program = Id(a, 2);
    ready.peak_bytes = ready.result_bytes = {100};
    Tell("w-h0", ready);
  }
  Outputs Put(const std::string& from, uint32_t client, uint64_t n, int64_t floats) {
    const uint64_t id = Id(client, n);
    return Tell(from, wire::Put{id, id, 0, 1, 0, {DType::kF32, {floats}}, ""});
  }
  wire::RunInPlace Begin(uint64_t n, uint64_t before, uint64_t after, bool donated) {
    wire::RunInPlace run = Again(n, 0);
    run.argument_places = run.result_places = {0};
    run.places = {0};
    run.before = {Id(a, before)};
    run.after = {Id(a, after)};
    if (donated) run.donated = {0};
    return run;
  }
  wire::RunInPlace Again(uint64_t n, uint64_t previous) {
    wire::RunInPlace run;
    run.run = Id(a, n);
    run.program = Id(a, 2);
    run.previous = previous == 0 ? 0 : Id(a, previous);
    run.first_output = run.first_key = Id(a, n);
    return run;
  }
  struct Books {
    int64_t used, running;
    bool operator==(const Books&) const = default;
  };
  // Of the only device, as the status tells them.
  Books InBooks() {
    const std::string json = state.StatusJson(now);
    const auto number = [&](const std::string& key) {
      const size_t at = json.find("\"limit\": 1000");
      return std::stoll(json.substr(json.find("\"" + key + "\": ", at) + key.size() + 4));
    };
    return {number("used"), number("running")};
  }
  Code CodeOf(const Outputs& answer) {
    for (const Outgoing& outgoing : answer) {
      if (TypeOf(outgoing) == Type::kDone) return Read<wire::Done>(outgoing).outcomes.at(0).status.code();
      if (TypeOf(outgoing) == Type::kReject) return Read<wire::Reject>(outgoing).status.code();
    }
    return Code::kOk;
  }
};

TEST(RunsInPlaceKeepTheBooksAsTheyAre) {
  InPlace c;
  c.Put("a", c.a, 10, 25);
  EXPECT_EQ(TypeOf(c.Tell("a", c.Begin(20, 10, 11, true)).at(0)), Type::kRunInPlace);
  EXPECT_EQ(c.InBooks().used, 100);  // 11 in the memory of 10
  c.Done("h0", {InPlace::Id(c.a, 20)});
  for (uint64_t n = 21; n < 31; ++n) {
    const Outputs passed = c.Tell("a", c.Again(n, n - 1));
    ASSERT_EQ(TypeOf(passed.at(0)), Type::kRunInPlace);
    EXPECT(SequenceOf(passed.at(0)) > 0);
    EXPECT_EQ(c.InBooks().used, 100);
    EXPECT_EQ(c.InBooks().running, 0);
    c.Done("h0", {InPlace::Id(c.a, n)});
  }
  c.Tell("a", wire::Free{0, {InPlace::Id(c.a, 11)}});
  EXPECT_EQ(c.InBooks().used, 0);
}

TEST(WhatAResultReplacesCountsUntilTheRunIsOver) {
  InPlace c(/*overwrites=*/false);
  c.Put("a", c.a, 10, 25);
  c.Tell("a", c.Begin(20, 10, 11, false));
  EXPECT_EQ(c.InBooks().used, 200);  // 10 stays its holder's
  c.Done("h0", {InPlace::Id(c.a, 20)});
  c.Tell("a", wire::Free{0, {InPlace::Id(c.a, 10)}});
  c.Tell("a", c.Again(21, 20));
  EXPECT_EQ(c.InBooks().used, 100);
  EXPECT_EQ(c.InBooks().running, 100);
  c.Done("h0", {InPlace::Id(c.a, 21)});
  EXPECT_EQ(c.InBooks().running, 0);
}

TEST(RunsInPlaceOfOtherClientsOrOutOfOrderAreRefused) {
  InPlace c;
  c.Put("a", c.a, 10, 25);
  c.Put("b", c.b, 10, 25);
  wire::RunInPlace stolen = c.Begin(20, 10, 11, true);
  stolen.before = {InPlace::Id(c.b, 10)};
  EXPECT_EQ(c.CodeOf(c.Tell("a", stolen)), Code::kPermissionDenied);
  wire::RunInPlace foreign = c.Begin(20, 10, 11, true);
  foreign.after = {InPlace::Id(c.b, 11)};
  EXPECT_EQ(c.CodeOf(c.Tell("a", foreign)), Code::kPermissionDenied);
  EXPECT_EQ(c.CodeOf(c.Tell("a", c.Again(21, 20))), Code::kFailedPrecondition);
  EXPECT_EQ(c.InBooks().used, 200);
  EXPECT_EQ(c.CodeOf(c.Tell("a", c.Begin(22, 10, 12, true))), Code::kOk);
  EXPECT_EQ(c.CodeOf(c.Tell("a", c.Again(23, 22))), Code::kOk);
}

TEST(AStepWithoutStateRunsInPlaceToo) {
  InPlace c(/*overwrites=*/false);
  c.Put("a", c.a, 10, 25);
  const auto stateless = [&](uint64_t n, uint64_t previous) {
    wire::RunInPlace run = c.Again(n, previous);
    if (previous == 0) run.argument_places = run.result_places = {wire::kNoPlace};
    run.arguments = {InPlace::Id(c.a, 10)};
    run.output_count = 1;
    return run;
  };
  for (const uint64_t n : {20u, 21u}) {
    EXPECT_EQ(TypeOf(c.Tell("a", stateless(n, n == 20 ? 0 : 20)).at(0)), Type::kRunInPlace);
    c.Done("h0", {InPlace::Id(c.a, n)});
    EXPECT_EQ(c.InBooks().used, n == 20 ? 200 : 300);  // its result is counted
  }
  // One that names its places anew does not continue with the old ones.
  EXPECT_EQ(TypeOf(c.Tell("a", c.Begin(22, 10, 11, false)).at(0)), Type::kRunInPlace);
  c.Done("h0", {InPlace::Id(c.a, 22)});
  EXPECT_EQ(TypeOf(c.Tell("a", stateless(23, 0)).at(0)), Type::kRunInPlace);
  c.Done("h0", {InPlace::Id(c.a, 23)});
  wire::RunInPlace donating = stateless(24, 0);
  donating.donated = {0};
  EXPECT_EQ(TypeOf(c.Tell("a", donating).at(0)), Type::kRunInPlace);
}

TEST(WhatIsResidentIsBroughtBackBeforeTheNextRun) {
  InPlace c;
  c.Put("a", c.a, 10, 25);
  c.Tell("a", c.Begin(20, 10, 11, true));
  c.Done("h0", {InPlace::Id(c.a, 20)});
  c.Put("b", c.b, 30, 125);
  EXPECT(c.Put("b", c.b, 31, 110).empty());  // 100 + 500 + 440 bytes
  c.now += 1000;
  c.out.clear();
  c.state.OnTick(c.now, c.out);
  const auto spill =
      std::find_if(c.out.begin(), c.out.end(), [](const Outgoing& o) { return TypeOf(o) == Type::kSpill; });
  ASSERT(spill != c.out.end());
  EXPECT(Read<wire::Spill>(*spill).buffers == std::vector<uint64_t>{InPlace::Id(c.a, 11)});
  EXPECT(c.Tell("a", c.Again(21, 20)).empty());  // it is on its way out
  wire::Spill moved;
  moved.buffers = {InPlace::Id(c.a, 11)};
  c.Tell("w-h0", moved);
  const Outputs freed = c.Tell("b", wire::Free{0, {InPlace::Id(c.b, 30)}});
  std::vector<Type> types;
  for (const Outgoing& o : freed) types.push_back(TypeOf(o));
  const auto restore = std::find(types.begin(), types.end(), Type::kRestore);
  const auto run = std::find(types.begin(), types.end(), Type::kRunInPlace);
  ASSERT(restore != types.end() && run != types.end());
  EXPECT(restore < run);
}

}  // namespace
}  // namespace pathways::controller
