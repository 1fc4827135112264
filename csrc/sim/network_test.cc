#include "csrc/sim/network.h"

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::sim {
namespace {

struct Net {
  Timeline timeline;
  Network network{&timeline, {.latency_ns = 1000, .bytes_per_ns = 2.0, .local_bytes_per_ns = 4.0}};
  int64_t came = -1;
  Status error;
  Network::Arrival Arrival() {
    return [this](int64_t at, const Status& status) {
      came = at;
      error = status;
    };
  }
  void RunAll() {
    while (timeline.RunNext()) {
    }
  }
};

TEST(ATransferTakesLatencyAndItsBytes) {
  Net net;
  net.network.Receive(0, 1, 7, net.Arrival());
  net.network.Send(0, 1, 7, 4000, Value::Settled(100));
  net.RunAll();
  EXPECT_EQ(net.came, 100 + 2000 + 1000);
  EXPECT_EQ(net.network.unmatched(), 0u);
}

TEST(WhoeverComesFirst) {
  Net net;
  auto source = std::make_shared<Value>();
  net.network.Send(0, 1, 7, 4000, source);
  source->Settle(500);
  net.network.Receive(0, 1, 7, net.Arrival());
  net.RunAll();
  EXPECT_EQ(net.came, 500 + 2000 + 1000);
}

TEST(TransfersOfOneHostTakeTurnsAndThoseWithinAHostPayTheCopyOnly) {
  Net net;
  EXPECT_EQ(net.network.Transfer(0, 1, 0, 2000), 2000);
  EXPECT_EQ(net.network.Transfer(0, 2, 0, 2000), 3000);
  EXPECT_EQ(net.network.Transfer(3, 2, 0, 2000), 2000);
  EXPECT_EQ(net.network.Transfer(0, 0, 0, 2000), 500);
}

TEST(AnErrorTravelsInPlaceOfTheBytes) {
  Net net;
  net.network.Receive(0, 1, 7, net.Arrival());
  net.network.Send(0, 1, 7, 1 << 30, Value::Settled(0, InvalidArgument("root cause")));
  net.RunAll();
  EXPECT_EQ(net.came, 1000);
  EXPECT_HAS(net.error.ToString(), "root cause");
}

TEST(WhoWaitsForALostHostHearsOfItAndNothingIsKept) {
  Net net;
  net.network.Receive(0, 1, 7, net.Arrival());
  net.network.LoseHost(0, Unavailable("host 'a' is lost"));
  EXPECT_HAS(net.error.ToString(), "host 'a' is lost");
  net.network.Send(0, 1, 8, 10, Value::Settled(0));  // it says nothing any more
  net.network.Send(1, 0, 9, 10, Value::Settled(0));  // and nobody listens
  EXPECT_EQ(net.network.unmatched(), 0u);
}

TEST(TransfersOfAClientThatIsGoneAreForgotten) {
  Net net;
  net.network.Receive(0, 1, (uint64_t{5} << wire::kClientShift) + 1, net.Arrival());
  net.network.Send(0, 1, (uint64_t{6} << wire::kClientShift) + 1, 10, Value::Settled(0));
  net.network.DropClient(5, Cancelled("client 5 is gone"));
  EXPECT_HAS(net.error.ToString(), "client 5 is gone");
  EXPECT_EQ(net.network.unmatched(), 1u);
}

}  // namespace
}  // namespace pathways::sim
