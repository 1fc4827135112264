#include "csrc/controller/runs.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// A host of one device, a client, and its function 1, which the host has not compiled yet.
struct Running {
  Running() {
    wire::Hello hello;
    hello.name = "a";
    hello.devices.resize(1);
    hosts.Add(hello, "w-a", 1, scheduler.AddIsland());
    scheduler.AddClient(client.index, 1, 0);
    FunctionState& function = client.functions[Id(1)];
    function.hosts[0] = Compile::kPending;
    function.pending = 1;
  }
  uint64_t Id(uint64_t n) const { return (uint64_t{client.index} << wire::kClientShift) | n; }
  wire::Run RunOf(uint64_t function) const {
    wire::Run run;
    run.run = Id(10);
    run.function = Id(function);
    run.first_output = Id(11);
    run.devices = {0};
    return run;
  }
  Result<Outcome> Take(const wire::Run& run) {
    std::string frame = wire::Encode(run);
    const wire::Head head = *wire::DecodeHead(frame);
    std::vector<Payload> none;
    Message message{head, frame, none, 1};
    return runs.Take(client, run, message, outbox);
  }

  Outputs out;
  LogLines log;
  Outbox outbox{1000, {}, out, log};
  scheduler::GangScheduler scheduler{scheduler::SchedulerOptions{}};
  Hosts hosts{std::string(32, 'k')};
  Clients clients;
  Client& client = clients.Add(wire::Hello{}, "c", 2, 1000);
  MemoryLedger ledger;
  MemoryGate gate{ledger, hosts};
  Runs runs{hosts, clients, scheduler, ledger, gate, true};
};

TEST(ARunWaitsForItsFunctionAndItsTurn) {
  Running r;
  EXPECT(*r.Take(r.RunOf(1)) == Outcome::kMustWait);
  EXPECT(r.client.stream.wait() == Wait::kCompile);
  EXPECT(r.out.empty());
  r.client.functions.at(r.Id(1)).hosts[0] = Compile::kReady;
  r.client.functions.at(r.Id(1)).pending = 0;
  Outcome outcome = *r.Take(r.RunOf(1));
  if (outcome == Outcome::kMustWait) {
    EXPECT(r.client.stream.wait() == Wait::kTurn);
    const auto grant = r.scheduler.TakeGrant(1000);
    ASSERT(grant.has_value());
    r.client.stream.Grant(grant->run);
    outcome = *r.Take(r.RunOf(1));
  }
  EXPECT(outcome == Outcome::kHandled);
  ASSERT_EQ(r.out.size(), 1u);
  EXPECT_EQ(r.out[0].to, "w-a");
  // The host's word ends it, and its client is told.
  wire::Done done;
  done.outcomes.push_back({r.Id(10), 0, 5, OkStatus()});
  r.runs.Done(0, done, wire::Encode(done), r.outbox);
  ASSERT_EQ(r.out.size(), 2u);
  EXPECT_EQ(r.out[1].to, "c");
}

TEST(ARunOfWhatIsNotThereFailsAndAnothersIsRefused) {
  Running r;
  EXPECT(*r.Take(r.RunOf(2)) == Outcome::kHandled);
  ASSERT_EQ(r.out.size(), 1u);
  EXPECT(wire::Decode<wire::Done>(wire::DecodeHead(r.out[0].head)->body)->outcomes.at(0).status.code() ==
         Code::kNotFound);
  wire::Run run = r.RunOf(1);
  run.arguments = {uint64_t{9} << wire::kClientShift};
  EXPECT(r.Take(run).status().code() == Code::kPermissionDenied);
}

// The status of the only outcome that was sent.
Status OutcomeIn(Outputs& out) {
  if (out.size() != 1) return Internal(std::to_string(out.size()) + " messages");
  const std::string head = std::move(out[0].head);
  out.clear();
  PW_ASSIGN_OR_RETURN(const wire::Head decoded, wire::DecodeHead(head));
  PW_ASSIGN_OR_RETURN(const wire::Done done, wire::Decode<wire::Done>(decoded.body));
  return done.outcomes.size() == 1 ? done.outcomes[0].status : Internal("no outcome");
}

TEST(WhatTakesTheResultOfARunThatNoHostWasGivenFailsWithItsCause) {
  Running r;
  r.client.functions.at(r.Id(1)).hosts[0] = Compile::kReady;
  r.client.functions.at(r.Id(1)).pending = 0;
  wire::Run lost = r.RunOf(7);  // not registered
  lost.output_count = 2;
  EXPECT(*r.Take(lost) == Outcome::kHandled);
  EXPECT_HAS(OutcomeIn(r.out).ToString(), "is not registered");
  wire::Run then = r.RunOf(1);
  then.run = r.Id(20);
  then.first_output = r.Id(21);
  then.output_count = 1;
  then.arguments = {r.Id(12)};
  EXPECT(*r.Take(then) == Outcome::kHandled);
  EXPECT_HAS(OutcomeIn(r.out).ToString(), "is not registered");
  then.run = r.Id(30);
  then.first_output = r.Id(31);
  then.arguments = {r.Id(21)};  // of the run that took it
  EXPECT(*r.Take(then) == Outcome::kHandled);
  EXPECT_HAS(OutcomeIn(r.out).ToString(), "is not registered");
  EXPECT(r.client.failed_outputs.Find(r.Id(13)) == nullptr);  // behind the two results
}

TEST(FailedOutputsAreRememberedByRange) {
  FailedOutputs failed;
  EXPECT(failed.Find(5) == nullptr);
  failed.Note(10, 3, Unavailable("first"));
  failed.Note(20, 0, Unavailable("nothing"));
  failed.Note(30, 1, Unavailable("second"));
  EXPECT(failed.Find(9) == nullptr && failed.Find(13) == nullptr && failed.Find(20) == nullptr);
  ASSERT(failed.Find(12) != nullptr && failed.Find(30) != nullptr);
  EXPECT_EQ(failed.Find(12)->message(), "first");
  const std::vector<uint64_t> arguments = {1, wire::kAssembledBit}, assembled = {2, 0, 30, 1};
  ASSERT(failed.FindAmong(arguments, assembled) != nullptr);
  EXPECT_EQ(failed.FindAmong(arguments, assembled)->message(), "second");
  EXPECT(failed.FindAmong(arguments, {}) == nullptr);
  for (uint64_t run = 0; run < FailedOutputs::kRunsMax; ++run) failed.Note(100 + run, 1, Unavailable("later"));
  EXPECT(failed.Find(10) == nullptr && failed.Find(100) != nullptr);
}

}  // namespace
}  // namespace pathways::controller
