// A session on a link that the test drives.
#include "csrc/client/session.h"

#include <cstdlib>
#include <thread>

#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {
namespace {

std::shared_ptr<Session> Connected(const std::shared_ptr<Wire>& wire) {
  EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
  SessionOptions options;
  options.link = [wire](Link::Sink sink, std::function<void(Status)>) -> Result<std::unique_ptr<Link>> {
    wire->sink = std::move(sink);
    return std::unique_ptr<Link>(std::make_unique<WireLink>(wire));
  };
  auto session = Session::Connect(options);
  EXPECT_OK(session.status());
  return *session;
}

TEST(ASessionWhoseLastReferenceGoesInItsOwnCallbackEndsOnAnotherThread) {
  const auto wire = std::make_shared<Wire>();
  std::shared_ptr<Session> session = Connected(wire);
  const float value = 1;
  Result<Shard> shard = session->buffers().Put(0, {DType::kF32, {}}, &value);
  EXPECT_OK(shard.status());
  float read = 0;
  const std::shared_ptr<Event> event = session->transfers().Fetch(*shard, &read, sizeof read);
  session.reset();
  shard = Cancelled("dropped");  // now the fetch holds the buffer, and the buffer the session
  wire::Fetched answer;
  answer.request = wire->Last<wire::Fetch>().request;
  answer.size = sizeof value;
  answer.inline_data.assign(reinterpret_cast<const char*>(&value), sizeof value);
  wire->sink(wire::Encode(answer), {});
  EXPECT_OK(*event->TryGet());
  EXPECT_EQ(read, 1);
  EXPECT(wire->closed.get_future().get() != std::this_thread::get_id());
}

TEST(AHostThatIsLostStaysLostWhateverComesLate) {
  const auto wire = std::make_shared<Wire>();
  const std::shared_ptr<Session> session = Connected(wire);
  EXPECT_EQ(session->hosts()[0].alive, 1);
  wire->sink(wire::Encode(wire::HostLost{0, "host 'h0' is lost"}), {});
  wire::Topology late;
  late.hosts = HostsWithDevices(2);
  wire->sink(wire::Encode(late), {});
  EXPECT_EQ(session->hosts()[0].alive, 0);
  EXPECT_EQ(session->hosts()[1].alive, 1);
  const float value = 1;
  EXPECT_HAS(session->buffers().Put(0, {DType::kF32, {}}, &value).status().message(), "host 'h0' is lost");
  EXPECT_OK(session->buffers().Put(1, {DType::kF32, {}}, &value).status());
  session->Close("the test is over");
}

TEST(MessagesMayComeWhileASessionOpens) {
  for (int round = 0; round < 10; ++round) {
    const auto wire = std::make_shared<Wire>();
    std::atomic<bool> stop{false};
    std::thread controller;
    {
      EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
      SessionOptions options;
      options.link = [&](Link::Sink sink, std::function<void(Status)>) -> Result<std::unique_ptr<Link>> {
        wire->sink = sink;
        controller = std::thread([&stop, sink] {
          wire::Topology topology;
          topology.hosts = Welcomed().hosts;
          while (!stop) {
            sink(wire::Encode(topology), {});
            sink(wire::Encode(wire::HostLost{0, "host 'h0' is lost"}), {});
          }
        });
        return std::unique_ptr<Link>(std::make_unique<WireLink>(wire));
      };
      const auto session = Session::Connect(options);
      EXPECT_OK(session.status());
      stop = true;
      controller.join();
      (*session)->Close("the test is over");
    }
  }
}

}  // namespace
}  // namespace pathways::client
