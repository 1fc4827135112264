#include "csrc/controller/clients.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

TEST(ANumberIsGivenAgainAfterAllOthers) {
  Clients clients;
  EXPECT_EQ(clients.Add(wire::Hello{}, "a", 1, 0).index, 1u);
  EXPECT_EQ(clients.Add(wire::Hello{}, "b", 2, 0).index, 2u);
  clients.Remove(1);
  EXPECT(clients.Find(1) == nullptr);
  EXPECT_EQ(clients.Add(wire::Hello{}, "c", 3, 0).index, 3u);
  EXPECT_EQ(clients.Indices(), (std::vector<uint32_t>{2, 3}));
}

TEST(AClientsWeightIsChecked) {
  Clients clients;
  wire::Hello hello;
  hello.weight = 1;
  EXPECT_OK(clients.Check(hello));
  hello.weight = 0;
  EXPECT(clients.Check(hello).code() == Code::kInvalidArgument);
}

TEST(AMessageReachesTheClientWhoseIdItAnswers) {
  Clients clients;
  const Client& client = clients.Add(wire::Hello{}, "a", 1, 0);
  Outputs out;
  LogLines log;
  Outbox outbox(0, {}, out, log);
  const uint64_t id = (uint64_t{client.index} << wire::kClientShift) | 5;
  EXPECT_OK(client.CheckOwns(id, "buffer"));
  EXPECT(client.CheckOwns(5, "buffer").code() == Code::kPermissionDenied);
  clients.Tell(id, "one", {}, outbox);
  clients.Tell(uint64_t{9} << wire::kClientShift, "two", {}, outbox);  // it has left
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].to, "a");
  EXPECT_EQ(out[0].head, "one");
}

}  // namespace
}  // namespace pathways::controller
