#include "csrc/controller/forwarding.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// Two hosts of one device each, of 100 bytes where one is limited, and a client.
struct Forwards {
  Forwards() {
    for (const char* name : {"a", "b"}) {
      wire::Hello hello;
      hello.name = name;
      hello.devices.resize(1);
      const Host& host = hosts.Add(hello, std::string("w-") + name, 1, 0);
      const int64_t limit = host.description.host == 0 ? 100 : 0;
      ledger.AddHost(host.description.host, host.description.first_device, std::span(&limit, 1), 0);
    }
  }
  template <typename Body>
  Result<Outcome> Take(const Body& body) {
    out.clear();
    std::string frame = wire::Encode(body);
    const wire::Head head = *wire::DecodeHead(frame);
    std::vector<Payload> none;
    Message message{head, frame, none, 1};
    return forwarding.Take(client, body, message, outbox);
  }
  // Of buffer 1, on the first host, as buffer 2.
  wire::Copy CopyToSecondHost() const {
    wire::Copy copy;
    copy.source = Id(1);
    copy.destination = Id(2);
    copy.destination_device = 1;
    copy.type = {DType::kF32, {2}};
    return copy;
  }
  uint64_t Id(uint64_t n) const { return (uint64_t{client.index} << wire::kClientShift) | n; }

  Outputs out;
  LogLines log;
  Outbox outbox{1000, {}, out, log};
  uint64_t sent = 0;
  Hosts hosts{std::string(32, 'k')};
  Clients clients;
  Client& client = clients.Add(wire::Hello{}, "c", 2, 1000);
  MemoryLedger ledger;
  MemoryGate gate{ledger, hosts};
  Forwarding forwarding{hosts, ledger, gate, [this](const Connection&) { return sent; }};
};

TEST(ACopyIsAnnouncedToItsReceiver) {
  Forwards f;
  EXPECT(*f.Take(f.CopyToSecondHost()) == Outcome::kHandled);
  ASSERT_EQ(f.out.size(), 2u);
  EXPECT_EQ(f.out[0].to, "w-b");
  EXPECT(wire::TypeOf(f.out[0].head) == wire::Type::kExpect);
  EXPECT_EQ(f.out[1].to, "w-a");
}

TEST(ACopyFromALostHostFailsWhatTakesIt) {
  Forwards f;
  f.hosts.Lose(0, "host 'a' is lost");
  wire::Copy copy = f.CopyToSecondHost();
  EXPECT(*f.Take(copy) == Outcome::kHandled);
  ASSERT_EQ(f.out.size(), 1u);
  EXPECT_EQ(f.out[0].to, "c");
  ASSERT(f.client.failed_outputs.Find(f.Id(2)) != nullptr);  // which no host knows
  EXPECT_HAS(f.client.failed_outputs.Find(f.Id(2))->message(), "host 'a' is lost");
  copy.source = f.Id(2);
  copy.destination = f.Id(3);
  copy.source_device = 1;  // which lives, as does the device that it goes to
  EXPECT(*f.Take(copy) == Outcome::kHandled);
  ASSERT_EQ(f.out.size(), 1u);
  EXPECT(wire::TypeOf(f.out[0].head) == wire::Type::kBufferFailed);
  EXPECT(f.client.failed_outputs.Find(f.Id(3)) != nullptr);
}

TEST(APutWaitsForMemoryAndOneToALostHostIsAnswered) {
  Forwards f;
  wire::Put put;
  put.type = {DType::kF32, {20}};
  put.buffer = put.key = f.Id(1);
  EXPECT(*f.Take(put) == Outcome::kHandled);
  put.buffer = put.key = f.Id(2);
  EXPECT(*f.Take(put) == Outcome::kMustWait);
  EXPECT(f.client.stream.wait() == Wait::kMemory);
  put.device = 1;
  f.hosts.Lose(1, "it ended");
  EXPECT(*f.Take(put) == Outcome::kHandled);
  ASSERT_EQ(f.out.size(), 1u);
  EXPECT_EQ(f.out[0].to, "c");
  EXPECT(wire::TypeOf(f.out[0].head) == wire::Type::kBufferFailed);
}

TEST(FetchesWaitForAHostThatTakesNone) {
  Forwards f;
  wire::Fetch fetch;
  fetch.request = fetch.buffer = f.Id(1);
  for (uint32_t i = 0; i < FetchRound::kMost; ++i) EXPECT(*f.Take(fetch) == Outcome::kHandled);
  EXPECT(*f.Take(fetch) == Outcome::kMustWait);
  EXPECT(f.client.stream.wait() == Wait::kFetches);
}

}  // namespace
}  // namespace pathways::controller
