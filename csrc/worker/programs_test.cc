// Programs: registered, checked against their functions, run; and what is asked about them.
#include "csrc/worker/programs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "csrc/worker/function_test_support.h"
#include "csrc/worker/program_runs.h"
#include "csrc/worker/queries.h"

namespace pathways::worker {
namespace {

constexpr uint64_t kProgram = (uint64_t{1} << wire::kClientShift) | 100;

struct HostOfPrograms : HostOfFunctions {
  Programs programs{context, functions};
  PlanHost plan_host{context, cluster, buffers, incoming, launcher, completions, *data};
  ProgramRuns runs_of_programs{context, programs, plan_host, buffers, incoming, completions, gangs, causes, *data};
  Parking parking;
  Activity activity{context, cluster, functions, completions, gangs, buffers, parking, incoming, *data};
  Queries queries{context, functions, programs, activity};

  using HostOfFunctions::HostOfFunctions;
  ~HostOfPrograms() { engine->Stop(); }

  // Twice its argument, by the function, on the first device.
  static wire::RegisterPlan Plan() {
    wire::RegisterPlan plan;
    plan.program = kProgram;
    plan.name = "p";
    plan.nodes = {"n"};
    plan.slots.assign(2, {kPair, {0}, {4}});
    plan.inputs = {{0, 1}};
    plan.outputs = {{1, 1}};
    wire::PlanStep step;
    step.kind = wire::StepKind::kExecute;
    step.function = kFunction;
    step.arguments = {0};
    step.results = {1};
    plan.steps = {step};
    return plan;
  }
  static wire::RunProgram ProgramRun(uint64_t number, uint64_t argument) {
    wire::RunProgram run;
    run.run = run.first_output = number;
    run.program = kProgram;
    run.output_count = 1;
    run.arguments = {argument};
    return run;
  }
  // Twice its argument is sent to this host itself and doubled once more. Results: what was received, what became of
  // it, and a copy of the first double on the other device.
  static wire::RegisterPlan PlanThatSends() {
    wire::RegisterPlan plan = Plan();
    plan.channels = 1;
    plan.slots.assign(4, {kPair, {0}, {4}});
    plan.slots.push_back({kPair, {0}, {5}});
    plan.outputs = {{2, 1}, {3, 1}, {4, 1}};
    wire::PlanStep send;
    send.kind = wire::StepKind::kSend;
    send.arguments = {1};
    send.host = 1;
    wire::PlanStep receive;
    receive.kind = wire::StepKind::kReceive;
    receive.results = {2};
    receive.pieces = {{0, 1, {}}};
    wire::PlanStep copy;
    copy.kind = wire::StepKind::kCopy;
    copy.arguments = {1};
    copy.results = {4};
    wire::PlanStep again = plan.steps[0];
    again.arguments = {2};
    again.results = {3};
    plan.steps.insert(plan.steps.end(), {send, receive, copy, again});
    return plan;
  }
  // Registers function and program, and waits until both are ready.
  void RegisterAll(const wire::RegisterPlan& plan = Plan()) {
    OnEngine([&] {
      EXPECT_OK(Register());
      EXPECT_OK(programs.Register(plan));
      EXPECT(!programs.Ready(kProgram).ok());
    });
    (void)messages.Await<wire::Registered>();
    OnEngine([&] {
      for (const auto& [program, status] : waiting.compiled) programs.Compiled(program, status);
    });
    EXPECT_OK(messages.Await<wire::PlanReady>().at(0).status);
  }
  wire::Reply Ask(wire::QueryKind kind, uint64_t about, uint32_t device = 4) {
    const size_t before = messages.All<wire::Reply>().size();
    wire::Query query;
    query.kind = kind;
    query.function = about;
    query.device = device;
    OnEngine([&] { queries.Answer(query); });
    return messages.Await<wire::Reply>(before + 1).back();
  }
};

TEST(AProgramIsReadyWithItsFunctionsAndRuns) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  host.RegisterAll();
  host.OnEngine([&] {
    EXPECT_OK(host.PutPair(10));
    EXPECT(host.runs_of_programs.Start(host.ProgramRun(20, 10), 1));
    EXPECT(host.context.store().Find(10) != nullptr);  // it was not given up
  });
  EXPECT_OK(host.Outcome(1).status);
  EXPECT_EQ(host.Fetch(20).inline_data.size(), 8);
  host.OnEngine([&] { EXPECT(host.programs.Register(host.Plan()).code() == Code::kAlreadyExists); });
}

TEST(AProgramThatDoesNotFitItsFunctionsIsRefused) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  host.OnEngine([&] { EXPECT_OK(host.programs.Register(host.Plan())); });
  EXPECT_HAS(host.messages.Await<wire::PlanReady>().at(0).status.message(), "is not registered on this host");
  host.OnEngine([&] { EXPECT_OK(host.Register()); });
  (void)host.messages.Await<wire::Registered>();
  host.OnEngine([&] {
    wire::RegisterPlan plan = host.Plan();
    plan.program = kProgram + 1;
    plan.slots[1].type = {DType::kF32, {3}};
    EXPECT_OK(host.programs.Register(plan));
  });
  EXPECT_HAS(host.messages.Await<wire::PlanReady>(2).at(1).status.message(), "expected result 0 to be");
}

TEST(ARunOfAProgramThatIsNotThereIsToldToAll) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  host.OnEngine([&] { EXPECT(host.runs_of_programs.Start(host.ProgramRun(20, 10), 1)); });
  EXPECT_HAS(host.Outcome(1).status.message(), "is not registered");
  EXPECT_EQ(host.messages.All<wire::Abort>().at(0).run, 20);
  EXPECT(!host.Fetch(20).status.ok());
}

TEST(AWalkStopsWhereItWouldWaitAndGoesOn) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterArguments);
  host.RegisterAll();
  host.OnEngine([&] {
    EXPECT_OK(host.buffers.Expect(PairThatComes(10)));
    EXPECT(!host.runs_of_programs.Start(host.ProgramRun(20, 10), 1));
  });
  const float values[] = {1, 2};
  host.incoming.Deliver(10, std::as_bytes(std::span(values)), nullptr);
  EXPECT_EQ(host.Fetch(10).inline_data.size(), 8);
  bool ended = false;
  for (int i = 0; i < 2000 && !ended; ++i) host.OnEngine([&] { ended = host.runs_of_programs.Continue(); });
  EXPECT(ended);
  EXPECT_OK(host.Outcome(1).status);
}

TEST(WhatAStepMakesIsSentWhenItIsKnownToBeRight) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 2);
  for (const bool fails : {false, true}) {
    HostOfPrograms host(client->shared_from_this());
    host.context.SetEnqueueAhead(EnqueueAhead::kAfterTransfers);
    host.RegisterAll(host.PlanThatSends());
    const auto origin = std::make_shared<store::Origin>();  // of a run that is under way
    wire::RunProgram run = host.ProgramRun(20, 10);
    run.output_count = 3;
    run.first_key = 40;
    host.OnEngine([&] {
      EXPECT_OK(host.PutPair(10));
      host.context.store().Find(10)->origin = origin;
      EXPECT(!host.runs_of_programs.Start(run, 1));
    });
    for (int i = 0; i < 20; ++i) host.OnEngine([&] { EXPECT(!host.runs_of_programs.Continue()); });
    host.OnEngine([&] { RootCauses::End(*origin, fails ? Internal("out of luck") : OkStatus()); });
    bool ended = false;
    for (int i = 0; i < 2000 && !ended; ++i) {
      host.OnEngine([&] { ended = host.runs_of_programs.Continue(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT(ended);
    EXPECT_HAS(host.Outcome(1).status.message(), fails ? "out of luck" : "");
    EXPECT_EQ(host.Outcome(1).status.ok(), !fails);
    for (const uint64_t id : {20, 21, 22}) {
      const wire::Fetched result = host.Fetch(id);
      EXPECT_HAS(result.status.message(), fails ? "out of luck" : "");
      EXPECT_EQ(result.inline_data.size(), fails ? 0 : 8);
    }
  }
}

TEST(AStepFailsWithATransferThatItReads) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 2);
  HostOfPrograms host(client->shared_from_this());
  host.context.SetEnqueueAhead(EnqueueAhead::kAfterTransfers);
  wire::RegisterPlan plan = host.Plan();
  plan.slots.push_back({kPair, {0}, {5}});
  plan.outputs.push_back({2, 1});
  wire::PlanStep copy;
  copy.kind = wire::StepKind::kCopy;
  copy.arguments = {0};
  copy.results = {2};
  plan.steps.insert(plan.steps.begin(), copy);
  host.RegisterAll(plan);
  wire::RunProgram run = host.ProgramRun(20, 10);
  run.output_count = 2;
  host.OnEngine([&] {
    EXPECT_OK(host.buffers.Expect(PairThatComes(10)));
    EXPECT(!host.runs_of_programs.Start(run, 1));
    host.causes.Remember("lost", Unavailable("host 'g' is lost"));
  });
  host.incoming.DeliverFailure(10, Unavailable("lost"));
  EXPECT(!host.Fetch(10).status.ok());
  bool ended = false;
  for (int i = 0; i < 2000 && !ended; ++i) host.OnEngine([&] { ended = host.runs_of_programs.Continue(); });
  EXPECT(ended);
  EXPECT_HAS(host.Outcome(1).status.message(), "host 'g' is lost");
  EXPECT_EQ(host.Fetch(20).status.message(), "host 'g' is lost");
  EXPECT_HAS(host.Fetch(21).status.message(), "host 'g' is lost");
}

TEST(QueriesAreAnsweredOrWaitForTheCompile) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  EXPECT_EQ(host.Ask(wire::QueryKind::kMemoryStats, 0).properties.size(), 5);
  EXPECT_HAS(host.Ask(wire::QueryKind::kMemoryStats, 0, 9).status.message(), "a device of this host");
  EXPECT_HAS(host.Ask(wire::QueryKind::kFingerprint, 7).status.message(), "is not registered here");
  EXPECT_HAS(host.Ask(wire::QueryKind::kTimes, 7).status.message(), "program 7 is not registered");
  wire::Query query;
  query.kind = wire::QueryKind::kOptimizedProgram;
  query.function = kFunction;
  host.OnEngine([&] {
    EXPECT_OK(host.Register());
    host.queries.Answer(query);
    EXPECT_EQ(host.functions.Find(kFunction)->waiting.size(), 1);
    query.kind = wire::QueryKind::kActivity;
    host.queries.Answer(query);  // what is awaited is told meanwhile
  });
  const wire::Reply doing = host.messages.Await<wire::Reply>(5).back();
  EXPECT_EQ(doing.properties.at(0).name, "compiles");
  EXPECT_EQ(doing.properties.at(0).text, "function 'doubled'");
  (void)host.messages.Await<wire::Registered>();
  EXPECT_OK(host.Ask(wire::QueryKind::kOptimizedProgram, kFunction).status);
}

// What is written to the log meanwhile.
template <typename Task>
std::string Said(Task task) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const int log = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  task();
  std::fflush(stderr);
  dup2(log, STDERR_FILENO);
  for (const int fd : {log, ends[1]}) close(fd);
  std::string said(4096, '\0');
  said.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], said.data(), said.size()), 0)));
  close(ends[0]);
  return said;
}

TEST(AnAnswerThatCannotBeSentIsSaidEvenByAHostThatEnds) {
  NEED_PLUGIN(client);
  HostOfPrograms host(client->shared_from_this());
  wire::Query query;
  query.kind = wire::QueryKind::kFingerprint;
  host.messages.closed = true;
  EXPECT_EQ(Said([&] { host.context.Send(wire::Goodbye()); }), "");
  EXPECT_HAS(Said([&] { host.queries.Answer(query); }), "the line is closed");
}

}  // namespace
}  // namespace pathways::worker
