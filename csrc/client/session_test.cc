// A session on a link that the test drives.
#include "csrc/client/session.h"

#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {
namespace {

// What the test sees of a session's link, which it outlives.
struct Wire {
  Link::Sink sink;
  std::mutex mutex;
  std::vector<std::string> sent;  // guarded by mutex
  std::promise<std::thread::id> closed;

  template <typename Body>
  Body Last() {
    std::lock_guard lock(mutex);
    Body body;
    for (const std::string& frame : sent) {
      const auto head = wire::DecodeHead(frame);
      if (head.ok() && head->header.type == Body::kType) body = *wire::Decode<Body>(head->body);
    }
    return body;
  }
};

wire::Welcome Welcomed() {
  wire::Welcome welcome;
  welcome.peer = 1;
  welcome.cluster = "session-test";
  welcome.heartbeat_interval_ms = 500;
  wire::HostDescription host;
  host.name = "h0";
  host.alive = 1;
  host.data_endpoint = "tcp://127.0.0.1:9";
  host.devices.resize(1);
  welcome.hosts.push_back(host);
  return welcome;
}

class WireLink : public Link {
 public:
  explicit WireLink(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  Status Send(std::string head, std::vector<Payload>) override {
    const auto decoded = wire::DecodeHead(head);
    const bool hello = decoded.ok() && decoded->header.type == wire::Type::kHello;
    {
      std::lock_guard lock(wire_->mutex);
      wire_->sent.push_back(std::move(head));
    }
    if (hello) wire_->sink(wire::Encode(Welcomed()), {});
    return OkStatus();
  }
  void Close() override { wire_->closed.set_value(std::this_thread::get_id()); }

 private:
  const std::shared_ptr<Wire> wire_;
};

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
  Result<Shard> shard = session->Put(0, {DType::kF32, {}}, &value);
  EXPECT_OK(shard.status());
  float read = 0;
  const std::shared_ptr<Event> event = session->Fetch(*shard, &read, sizeof read);
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
  late.hosts = Welcomed().hosts;
  late.hosts.push_back(late.hosts[0]);
  late.hosts[1].name = "h1";
  late.hosts[1].host = 1;
  late.hosts[1].first_device = 1;
  wire->sink(wire::Encode(late), {});
  EXPECT_EQ(session->hosts()[0].alive, 0);
  EXPECT_EQ(session->hosts()[1].alive, 1);
  const float value = 1;
  EXPECT_HAS(session->Put(0, {DType::kF32, {}}, &value).status().message(), "host 'h0' is lost");
  EXPECT_OK(session->Put(1, {DType::kF32, {}}, &value).status());
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
          topology.hosts[0].data_endpoint = "tcp://127.0.0.1:9";
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
