#include "csrc/controller/memory_gate.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// A host with one device of 100 bytes, and one without a limit.
struct Gate {
  Gate() {
    for (const int64_t limit : {100, 0}) {
      wire::Hello hello;
      hello.devices.resize(1);
      const Host& host = hosts.Add(hello, "w-" + std::to_string(limit), 1, 0);
      ledger.AddHost(host.description.host, host.description.first_device, std::span(&limit, 1), 0);
    }
  }
  MemoryGate::Pass AskForRun(uint64_t run, uint32_t host, int64_t bytes, uint32_t client = 1) {
    scheduler::GangShape shape;
    shape.Add(host, 0, host);
    const auto fill = [&](MemoryRequest& request) {
      request.id = run;
      request.client = client;
      request.is_run = true;
      request.hosts = {host};
      request.MakeOne(run + 1, bytes, host);
    };
    return gate.AskForRun(client, run, shape, stream, fill, outbox);
  }
  Outputs out;
  LogLines log;
  Outbox outbox{1000, {}, out, log};
  Hosts hosts{std::string(32, 'k')};
  MemoryLedger ledger;
  MemoryGate gate{ledger, hosts};
  ClientStream stream;
};

TEST(OnlyRunsOnLimitedDevicesAskAndWhatNeverFitsIsLeftToItsWorker) {
  Gate g;
  EXPECT(g.AskForRun(1, 1, 1000).may_go);
  EXPECT(g.AskForRun(1, 1, 1000).entered == nullptr);
  EXPECT(g.AskForRun(11, 0, 1000).may_go);
  EXPECT(g.AskForRun(11, 0, 1000).entered == nullptr);
  EXPECT(g.gate.AskForBuffer(1, 20, 20, 80, 0, 0, g.outbox));
  EXPECT(!g.gate.AskForBuffer(1, 21, 21, 80, 0, 0, g.outbox));
}

TEST(ARunThatIsHeldOrGrantedDoesNotAskAgain) {
  Gate g;
  const MemoryGate::Pass pass = g.AskForRun(1, 0, 80);
  ASSERT(pass.may_go && pass.entered != nullptr);
  g.ledger.Hold(*pass.entered);
  EXPECT(g.AskForRun(1, 0, 80).entered == nullptr);
  EXPECT(!g.AskForRun(3, 0, 80, 2).may_go);
  g.stream.Grant(3);
  EXPECT(g.AskForRun(3, 0, 80, 2).may_go);
}

}  // namespace
}  // namespace pathways::controller
