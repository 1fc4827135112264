#include "csrc/controller/registry.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// Two hosts of one device each, in islands of their own, and a client.
struct Registering {
  Registering() {
    for (const char* name : {"a", "b"}) {
      wire::Hello hello;
      hello.name = name;
      hello.platform = "tpu";
      hello.devices.resize(1);
      hosts.Add(hello, std::string("w-") + name, 1, scheduler.AddIsland());
    }
  }
  Status Register(const wire::Register& request) {
    std::string frame = wire::Encode(request);
    const wire::Head head = *wire::DecodeHead(frame);
    std::vector<Payload> none;
    Message message{head, frame, none, 1};
    return registry.Take(client, request, message, outbox);
  }
  uint64_t Id(uint64_t n) const { return (uint64_t{client.index} << wire::kClientShift) | n; }

  Outputs out;
  LogLines log;
  Outbox outbox{1000, {}, out, log};
  scheduler::GangScheduler scheduler{scheduler::SchedulerOptions{}};
  Hosts hosts{std::string(32, 'k')};
  Clients clients;
  Client& client = clients.Add(wire::Hello{}, "c", 2, 1000);
  Registry registry{hosts, clients, scheduler};
};

TEST(EachHostIsToldOfAFunctionOnce) {
  Registering r;
  wire::Register request;
  request.function = r.Id(1);
  request.one_device = true;
  request.devices = {0, 1};
  EXPECT_OK(r.Register(request));
  ASSERT_EQ(r.out.size(), 2u);
  EXPECT_EQ(r.out[1].to, "w-b");
  EXPECT_EQ(r.client.functions.at(r.Id(1)).pending, 2u);
  EXPECT_OK(r.Register(request));
  EXPECT_EQ(r.out.size(), 2u);
  wire::Registered answer;
  answer.function = r.Id(1);
  answer.host = 0;
  EXPECT(*r.registry.Registered(0, answer, wire::Encode(answer), r.outbox) == &r.client);
  EXPECT_EQ(r.client.functions.at(r.Id(1)).pending, 1u);
  EXPECT(!r.registry.Registered(1, answer, wire::Encode(answer), r.outbox).ok());  // it speaks for another
}

TEST(AFunctionOverTwoIslandsIsRefusedByBothHosts) {
  Registering r;
  wire::Register request;
  request.function = r.Id(1);
  request.devices = {0, 1};
  EXPECT_OK(r.Register(request));
  ASSERT_EQ(r.out.size(), 2u);
  EXPECT_EQ(r.out[0].to, "c");
  EXPECT_EQ(r.client.functions.at(r.Id(1)).pending, 0u);
  EXPECT(r.client.functions.at(r.Id(1)).hosts.at(1) == Compile::kFailed);
}

TEST(ALostHostAnswersNothingSoItsClientsAreTold) {
  Registering r;
  wire::Register request;
  request.function = r.Id(1);
  request.one_device = true;
  request.devices = {0};
  EXPECT_OK(r.Register(request));
  r.out.clear();
  r.registry.LoseHost(0, r.client, Unavailable("it ended"), r.outbox);
  ASSERT_EQ(r.out.size(), 1u);
  EXPECT_EQ(r.out[0].to, "c");
  EXPECT_EQ(r.client.functions.at(r.Id(1)).pending, 0u);
}

}  // namespace
}  // namespace pathways::controller
