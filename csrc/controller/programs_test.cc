// Programs, gangs over several hosts, and whose turn it is.
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>

#include "csrc/controller/test_support.h"

namespace pathways::controller {
namespace {

using wire::Type;

// Two hosts of one device each in one island, a client "a", and a program 5 with a plan on either.
struct TwoHosts : Cluster {
  explicit TwoHosts(const std::string& second_island = "i") {
    AddHost("h0", 1, "i");
    AddHost("h1", 1, second_island);
    a = AddClient("a");
    for (uint32_t host = 0; host < 2; ++host) {
      Register("a", a, 1 + host, host);
      Registered("h" + std::to_string(host), a, 1 + host);
    }
  }
  void RegisterPlans() {
    for (uint32_t host = 0; host < 2; ++host) Tell("a", Plan(a, 5, host, {host}, 1 + host));
  }
  void Ready() {
    PlanReady("h0", a, 5);
    PlanReady("h1", a, 5);
  }
  uint32_t a = 0;
};

const wire::RunOutcome* OutcomeFor(const Outputs& out, const Connection& client, wire::Done& storage) {
  for (const Outgoing& outgoing : out) {
    if (outgoing.to != client || TypeOf(outgoing) != Type::kDone) continue;
    storage = Read<wire::Done>(outgoing);
    return &storage.outcomes.at(0);
  }
  return nullptr;
}

TEST(AProgramRunsOnEveryHostOnceAllItsPlansAreReady) {
  TwoHosts c;
  Outputs out = c.Tell("a", c.Plan(c.a, 5, 0, {0}, 1));
  EXPECT(out.size() == 1 && out[0].to == "w-h0" && TypeOf(out[0]) == Type::kRegisterPlan);
  out = c.Tell("a", c.Plan(c.a, 5, 1, {1}, 2));
  EXPECT(out.size() == 1 && out[0].to == "w-h1");
  EXPECT_EQ(c.Tell("a", Cluster::ProgramRun(c.a, 10, 5)).size(), 0u);
  EXPECT_EQ(c.Tell("a", wire::Free{0, {Cluster::Id(c.a, 11)}}).size(), 0u);  // keeps its place behind the run
  out = c.PlanReady("h0", c.a, 5);
  EXPECT(out.size() == 1 && out[0].to == "a" && TypeOf(out[0]) == Type::kPlanReady);
  out = c.PlanReady("h1", c.a, 5);
  ASSERT_EQ(out.size(), 4u);
  EXPECT(out[0].to == "a" && TypeOf(out[0]) == Type::kPlanReady);
  EXPECT(out[1].to == "w-h0" && TypeOf(out[1]) == Type::kRunProgram && SequenceOf(out[1]) == 1u);
  EXPECT(out[2].to == "w-h1" && TypeOf(out[2]) == Type::kRunProgram && SequenceOf(out[2]) == 1u);
  EXPECT(out[3].to == "w-h0" && TypeOf(out[3]) == Type::kFree);
  EXPECT_EQ(out[1].head, out[2].head);
}

TEST(AProgramOverIslandsHasOnePlaceInTheOrder) {
  TwoHosts c("other");
  c.RegisterPlans();
  c.Ready();
  EXPECT_EQ(SequenceOf(c.Run("a", c.a, 20, 2, {1}).at(0)), 1u);
  Outputs out = c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(SequenceOf(out[0]), 2u);
  EXPECT_EQ(SequenceOf(out[1]), 2u);
}

TEST(TheClientHearsOfAGangWhenItsLastHostIsDone) {
  TwoHosts c;
  c.RegisterPlans();
  c.Ready();
  const uint64_t run = Cluster::Id(c.a, 10);
  c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  EXPECT_EQ(c.Done("h0", {run}, 5).size(), 0u);
  EXPECT_EQ(c.Done("h0", {run}, 5).size(), 0u);  // a host's word counts once
  wire::Done done;
  const wire::RunOutcome* outcome = OutcomeFor(c.Done("h1", {run}, 7), "a", done);
  ASSERT(outcome != nullptr);
  EXPECT(outcome->run == run && outcome->status.ok());
}

TEST(TheClientHearsOfAFailureAtOnceAndOnce) {
  TwoHosts c;
  c.RegisterPlans();
  c.Ready();
  const uint64_t run = Cluster::Id(c.a, 10);
  c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  wire::Done done;
  const wire::RunOutcome* outcome = OutcomeFor(c.Done("h0", {run}, 5, Internal("broken")), "a", done);
  ASSERT(outcome != nullptr);
  EXPECT_EQ(outcome->status.message(), "broken");
  EXPECT_EQ(c.Done("h1", {run}, 5).size(), 0u);
}

TEST(APlanThatFailsFailsTheRuns) {
  TwoHosts c;
  c.RegisterPlans();
  c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  c.PlanReady("h0", c.a, 5);
  wire::Done done;
  const wire::RunOutcome* outcome = OutcomeFor(c.PlanReady("h1", c.a, 5, InvalidArgument("no such step")), "a", done);
  ASSERT(outcome != nullptr);
  EXPECT(outcome->status == InvalidArgument("no such step"));
}

TEST(ALostHostFailsPlansAndRunsOfThoseWhoNeedIt) {
  TwoHosts c;
  c.RegisterPlans();
  c.PlanReady("h0", c.a, 5);
  c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  c.out.clear();
  c.state.OnDisconnected("w-h1", "killed", c.out);
  bool plan = false;
  for (const Outgoing& outgoing : c.out) {
    if (TypeOf(outgoing) != Type::kPlanReady) continue;
    plan = Read<wire::PlanReady>(outgoing).status.code() == Code::kUnavailable;
  }
  wire::Done done;
  const wire::RunOutcome* outcome = OutcomeFor(c.out, "a", done);
  ASSERT(outcome != nullptr);
  EXPECT(plan && outcome->status.code() == Code::kUnavailable);
  EXPECT(OutcomeFor(c.Tell("a", Cluster::ProgramRun(c.a, 20, 5)), "a", done) != nullptr);
  Outputs out = c.Tell("a", c.Plan(c.a, 6, 1, {1}, 2));  // a plan for a host that is gone
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Read<wire::PlanReady>(out[0]).status.code(), Code::kUnavailable);
}

TEST(AHostLostInTheMiddleOfAGangFailsIt) {
  TwoHosts c;
  c.RegisterPlans();
  c.Ready();
  c.Tell("a", Cluster::ProgramRun(c.a, 10, 5));
  c.Done("h0", {Cluster::Id(c.a, 10)}, 5);
  c.out.clear();
  c.state.OnDisconnected("w-h1", "killed", c.out);
  wire::Done done;
  const wire::RunOutcome* outcome = OutcomeFor(c.out, "a", done);
  ASSERT(outcome != nullptr);
  EXPECT(outcome->status.message().find("'h1'") != std::string_view::npos);
}

TEST(AFunctionOverIslandsIsRefusedBeforeItIsCompiled) {
  Cluster c;
  c.AddHost("h0", 1, "i");
  c.AddHost("h1", 1, "j");
  const uint32_t a = c.AddClient("a");
  const Outputs out = c.Register("a", a, 7, std::vector<uint32_t>{0, 1});
  ASSERT_EQ(out.size(), 2u);  // an answer for each host, and nothing to the workers
  for (const Outgoing& outgoing : out) {
    EXPECT_EQ(outgoing.to, "a");
    const Status status = Read<wire::Registered>(outgoing).status;
    EXPECT(status.code() == Code::kUnimplemented);
    EXPECT_HAS(status.ToString(), "islands 'i' and 'j'");
  }
}

TEST(AFunctionOverHostsOfOneIslandRunsOnEach) {
  TwoHosts c;
  c.Register("a", c.a, 9, std::vector<uint32_t>{0, 1});
  EXPECT_EQ(c.Run("a", c.a, 10, 9, {0, 1}).size(), 0u);
  c.Registered("h0", c.a, 9);
  Outputs out = c.Registered("h1", c.a, 9);
  ASSERT_EQ(out.size(), 3u);
  EXPECT(TypeOf(out[1]) == Type::kRun && out[1].to == "w-h0" && TypeOf(out[2]) == Type::kRun && out[2].to == "w-h1");
  EXPECT_EQ(c.Done("h0", {Cluster::Id(c.a, 10)}).size(), 0u);
  EXPECT_EQ(c.Done("h1", {Cluster::Id(c.a, 10)}).size(), 1u);
  wire::Done done;
  // A device twice, and a function that is not on every host.
  EXPECT_EQ(OutcomeFor(c.Run("a", c.a, 30, 9, {0, 0}), "a", done)->status.code(), Code::kInvalidArgument);
  EXPECT_EQ(OutcomeFor(c.Run("a", c.a, 40, 1, {0, 1}), "a", done)->status.code(), Code::kNotFound);
}

TEST(UnregisteredProgramsAreForgottenEverywhere) {
  TwoHosts c;
  c.RegisterPlans();
  c.Ready();
  Outputs out = c.Tell("a", wire::Unregister{{}, {Cluster::Id(c.a, 5)}});
  ASSERT_EQ(out.size(), 2u);
  for (const Outgoing& outgoing : out) {
    EXPECT(Read<wire::Unregister>(outgoing).programs == std::vector<uint64_t>{Cluster::Id(c.a, 5)});
  }
  wire::Done done;
  EXPECT_EQ(OutcomeFor(c.Tell("a", Cluster::ProgramRun(c.a, 10, 5)), "a", done)->status.code(), Code::kNotFound);
}

TEST(WhatIsNotTheClientsOwnIsRefused) {
  TwoHosts c;
  c.RegisterPlans();
  c.Ready();
  const uint32_t b = c.AddClient("b");
  const auto refusal = [&](const auto& body) {
    Outputs out = c.Tell("b", body);
    return out.size() == 1 && out[0].to == "b" && TypeOf(out[0]) == Type::kReject
               ? Read<wire::Reject>(out[0]).status.code()
               : Code::kOk;
  };
  EXPECT_EQ(refusal(c.Plan(c.a, 5, 0, {0}, 1)), Code::kPermissionDenied);  // another's program
  wire::RegisterPlan plan = c.Plan(b, 5, 0, {0}, 1);
  plan.steps[0].function = Cluster::Id(c.a, 1);
  EXPECT_EQ(refusal(plan), Code::kPermissionDenied);
  plan.host = 7;
  plan.steps.clear();
  EXPECT_EQ(refusal(plan), Code::kInvalidArgument);
  EXPECT_EQ(refusal(wire::Unregister{{}, {Cluster::Id(c.a, 5)}}), Code::kPermissionDenied);
  wire::RunProgram run = Cluster::ProgramRun(b, 10, 5);
  run.arguments = {Cluster::Id(c.a, 1)};
  EXPECT_EQ(refusal(run), Code::kPermissionDenied);
  run = Cluster::ProgramRun(b, 10, 5);
  run.assembled = {Cluster::Id(c.a, 1), 0};
  EXPECT_EQ(refusal(run), Code::kPermissionDenied);
  run = Cluster::ProgramRun(b, 10, 5);
  run.output_count = wire::kMaxRunOutputs + 1;
  EXPECT_EQ(refusal(run), Code::kInvalidArgument);
  wire::Fetch fetch{Cluster::Id(c.a, 3), Cluster::Id(b, 4), 0, 0, 0};
  EXPECT_EQ(refusal(fetch), Code::kPermissionDenied);
  EXPECT_EQ(refusal(wire::Query{Cluster::Id(b, 6), wire::QueryKind::kTimes, Cluster::Id(c.a, 5), 0}),
            Code::kPermissionDenied);
  EXPECT_EQ(refusal(wire::Spill{{Cluster::Id(b, 1)}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(wire::Restore{{Cluster::Id(b, 1)}}), Code::kInvalidArgument);
}

TEST(APlanThatCannotBeIsAnsweredWithTheReason) {
  TwoHosts c;
  const auto answer = [&](const wire::RegisterPlan& plan) {
    Outputs out = c.Tell("a", plan);
    return out.size() == 1 && TypeOf(out[0]) == Type::kPlanReady ? Read<wire::PlanReady>(out[0]).status : OkStatus();
  };
  EXPECT_EQ(answer(c.Plan(c.a, 20, 0, {1}, 1)).code(), Code::kInvalidArgument);  // a device of the other host
  EXPECT_EQ(answer(c.Plan(c.a, 21, 0, {0}, 2)).code(), Code::kNotFound);         // a function not registered there
  wire::RegisterPlan plan = c.Plan(c.a, 22, 0, {0}, 1);
  plan.steps[0].results = {9};
  EXPECT_EQ(answer(plan).code(), Code::kInvalidArgument);
  c.Tell("a", c.Plan(c.a, 23, 0, {0}, 1));
  plan = c.Plan(c.a, 23, 1, {1}, 2);
  plan.channels = 3;
  EXPECT_EQ(answer(plan).code(), Code::kInvalidArgument);  // the plans do not belong together
}

// --- turns

// One host, whose function 1 of client "a" is known to take a second.
struct Slow : Cluster {
  explicit Slow(scheduler::Policy policy = scheduler::Policy::kFifo)
      : Cluster{ClusterState{ClusterOptions{.cluster = "c", .build = "0.1.0", .scheduling = {.policy = policy}}}, {}} {
    AddHost("h0");
  }
  uint32_t Join(const Connection& connection, double weight = 1, int32_t priority = 0) {
    const uint32_t client = AddClient(connection, weight, priority);
    Register(connection, client, 1, 0);
    Registered("h0", client, 1);
    Run(connection, client, 1'000'000, 1);
    Done("h0", {Id(client, 1'000'000)}, 1'000'000);
    return client;
  }
};

TEST(ARunWaitsForItsTurnAndHoldsBackWhatFollows) {
  Slow c;
  const uint32_t a = c.Join("a"), b = c.Join("b");
  EXPECT_EQ(c.Run("a", a, 10, 1).size(), 1u);
  EXPECT_EQ(c.Run("a", a, 20, 1).size(), 1u);
  EXPECT_EQ(c.Run("a", a, 30, 1).size(), 0u);
  EXPECT_EQ(c.Run("a", a, 40, 1).size(), 0u);
  EXPECT_EQ(c.Tell("a", wire::Free{0, {Cluster::Id(a, 11)}}).size(), 0u);
  EXPECT_EQ(c.Tell("b", wire::Free{0, {Cluster::Id(b, 11)}}).size(), 1u);
  EXPECT_EQ(c.Run("b", b, 10, 1).size(), 0u);
  EXPECT_HAS(c.state.StatusJson(c.now), "\"waiting_for\": \"its turn\"");
  Outputs out = c.Done("h0", {Cluster::Id(a, 10)}, 1'000'000);
  ASSERT_EQ(out.size(), 2u);
  EXPECT(TypeOf(out[0]) == Type::kDone && TypeOf(out[1]) == Type::kRun);
  EXPECT_EQ(Read<wire::Run>(out[1]).run, Cluster::Id(a, 30));
  // First come, first served: a's fourth run was here before b's first, and takes what follows it along.
  out = c.Done("h0", {Cluster::Id(a, 20), Cluster::Id(a, 30)}, 1'000'000);
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(Read<wire::Run>(out[1]).run, Cluster::Id(a, 40));
  EXPECT(TypeOf(out[2]) == Type::kFree);
  EXPECT_EQ(Read<wire::Run>(out[3]).run, Cluster::Id(b, 10));
  EXPECT_EQ(SequenceOf(out[3]), SequenceOf(out[1]) + 1);
}

TEST(PrioritiesReachTheScheduler) {
  Slow c(scheduler::Policy::kPriority);
  const uint32_t a = c.Join("a"), b = c.Join("b", 1, 3);
  for (uint64_t run = 10; run <= 40; run += 10) c.Run("a", a, run, 1);
  EXPECT_EQ(c.Run("b", b, 10, 1).size(), 0u);
  Outputs out = c.Done("h0", {Cluster::Id(a, 10)}, 1'000'000);
  EXPECT_EQ(Read<wire::Run>(out.at(1)).run, Cluster::Id(b, 10));
}

TEST(WeightsThatCannotBeAreRefused) {
  Cluster c;
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = "0.1.0";
  for (const double weight : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    hello.weight = weight;
    Outputs out = c.Tell("x", hello);
    EXPECT(TypeOf(out.at(0)) == Type::kReject);
    EXPECT_HAS(Read<wire::Reject>(out.at(0)).status.message(), "weight");
  }
}

TEST(AClientThatIsGoneLeavesItsTurnToOthers) {
  Slow c;
  const uint32_t a = c.Join("a"), b = c.Join("b");
  for (uint64_t run = 10; run <= 40; run += 10) c.Run("a", a, run, 1);
  EXPECT_EQ(c.Run("b", b, 10, 1).size(), 0u);
  c.out.clear();
  c.state.OnDisconnected("a", "killed", c.out);
  bool granted = false;
  for (const Outgoing& outgoing : c.out) {
    granted = granted || (TypeOf(outgoing) == Type::kRun && Read<wire::Run>(outgoing).run == Cluster::Id(b, 10));
  }
  EXPECT(granted);
}

TEST(TheControllerItselfAnswersForTheClustersState) {
  TwoHosts c;
  wire::Query query;
  query.request = Cluster::Id(c.a, 77);
  query.kind = wire::QueryKind::kStatus;
  Outputs out = c.Tell("a", query);
  ASSERT_EQ(out.size(), 1u);
  EXPECT(out[0].to == "a" && TypeOf(out[0]) == Type::kReply && Read<wire::Reply>(out[0]).request == query.request);
  EXPECT_HAS(*out[0].payloads.at(0), "\"policy\": \"fifo\"");
  EXPECT_HAS(*out[0].payloads.at(0), "\"name\": \"h1\"");
}

TEST(WithoutArbitrationHostsSeeGangsInDifferentOrders) {
  for (const bool arbitrate : {true, false}) {
    Cluster c{ClusterState{ClusterOptions{.cluster = "c", .build = "0.1.0", .scheduling = {.arbitrate = arbitrate}}},
              {}};
    c.AddHost("h0", 1, "i");
    c.AddHost("h1", 1, "i");
    const uint32_t clients[] = {c.AddClient("a"), c.AddClient("b")};
    const Connection names[] = {"a", "b"};
    for (int i = 0; i < 2; ++i) {
      c.Register(names[i], clients[i], 1, std::vector<uint32_t>{0, 1});
      c.Registered("h0", clients[i], 1);
      c.Registered("h1", clients[i], 1);
    }
    std::map<Connection, std::vector<uint64_t>> seen;
    const auto note = [&](const Outputs& out) {
      for (const Outgoing& outgoing : out) {
        if (TypeOf(outgoing) == Type::kRun) seen[outgoing.to].push_back(Read<wire::Run>(outgoing).run);
      }
    };
    note(c.Run("a", clients[0], 10, 1, {0, 1}));
    note(c.Run("b", clients[1], 10, 1, {0, 1}));
    EXPECT_EQ(seen["w-h0"].size(), 2u);
    EXPECT_EQ(seen["w-h1"].size(), 2u);
    EXPECT_EQ(seen["w-h0"] == seen["w-h1"], arbitrate);
    // What a client sends later does not overtake its gangs.
    note(c.Run("a", clients[0], 20, 1, {0, 1}));
    Outputs out = c.Tell("a", wire::Free{1, {Cluster::Id(clients[0], 11)}});
    EXPECT(TypeOf(out.back()) == Type::kFree);
    note(out);
    EXPECT_EQ(seen["w-h1"].size(), 3u);
  }
}

TEST(OneMessageReaches512HostsInTime) {
  Cluster c;
  constexpr uint32_t kHosts = 512;
  for (uint32_t host = 0; host < kHosts; ++host) c.AddHost("h" + std::to_string(host), 4, "pod");
  const uint32_t a = c.AddClient("a");
  std::vector<uint32_t> all(kHosts * 4);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  c.Register("a", a, 1, all);
  for (uint32_t host = 0; host < kHosts; ++host) c.Registered("h" + std::to_string(host), a, 1);
  for (uint32_t host = 0; host < kHosts; ++host) {
    c.Tell("a", c.Plan(a, 5, host, {host * 4, host * 4 + 1, host * 4 + 2, host * 4 + 3}, 1));
  }
  for (uint32_t host = 0; host < kHosts; ++host) c.PlanReady("h" + std::to_string(host), a, 5);
  double submit_us = 1e9, done_us = 1e9;
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  for (uint64_t i = 0; i < 20; ++i) {
    const uint64_t run = Cluster::Id(a, 100 + 10 * i);
    Outputs out;
    const std::string frame = wire::Encode(Cluster::ProgramRun(a, 100 + 10 * i, 5));
    auto start = Clock::now();
    c.state.OnMessage("a", frame, {}, 1, out);
    submit_us = std::min(submit_us, us(Clock::now() - start));
    ASSERT_EQ(out.size(), size_t{kHosts});
    wire::Done done;
    done.outcomes = {{run, 0, 10, OkStatus()}};
    const std::string answer = wire::Encode(done);
    out.clear();
    start = Clock::now();
    for (uint32_t host = 0; host < kHosts; ++host) {
      c.state.OnMessage("w-h" + std::to_string(host), answer, {}, 1, out);
    }
    done_us = std::min(done_us, us(Clock::now() - start));
    ASSERT_EQ(out.size(), 1u);
  }
  std::printf("  512 hosts x 4 devices: dispatch %.0f us, completion %.0f us\n", submit_us, done_us);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT(submit_us < 1000);
#endif
}

}  // namespace
}  // namespace pathways::controller
