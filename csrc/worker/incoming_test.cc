// Bytes that nobody waits for any more are let go.
#include "csrc/worker/incoming.h"

#include <cstdlib>
#include <future>

#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::worker {
namespace {

constexpr uint64_t KeyOf(uint64_t client) { return (client << wire::kClientShift) | 7; }

struct Arrivals {
  Incoming incoming;
  std::unique_ptr<dataplane::DataPlane> data;
  std::shared_ptr<std::vector<std::byte>> bytes = std::make_shared<std::vector<std::byte>>(16);

  Arrivals() {
    const char* const library = std::getenv("PW_LIBZMQ");
    EXPECT_OK(transport::LoadZmq(library != nullptr ? library : ""));
    dataplane::DataPlaneOptions options;
    options.cluster = "incoming-test";
    options.identity = "w/test";
    Result<std::unique_ptr<dataplane::DataPlane>> started = dataplane::DataPlane::Start(options, &incoming);
    EXPECT_OK(started.status());
    data = *std::move(started);
    incoming.Attach(data.get());
  }
  ~Arrivals() { data->Stop(); }
  // Whether the bytes are still kept once they were handed in.
  bool Keeps(uint64_t client, Incoming::When when) {
    incoming.Deliver(KeyOf(client), *bytes, bytes, when);
    std::promise<void> done;
    data->Post([&] { done.set_value(); });
    if (done.get_future().wait_for(std::chrono::seconds(20)) != std::future_status::ready) return true;
    return bytes.use_count() > 1;
  }
};

TEST(WhatComesForAClientThatIsGoneIsLetGo) {
  Arrivals c;
  EXPECT(!c.incoming.IsGone(3));
  c.incoming.FailOfClient(3, Cancelled("it is gone"));
  EXPECT(c.incoming.IsGone(3));
  EXPECT(!c.Keeps(3, Incoming::When::kAnyTime));
  EXPECT(c.Keeps(4, Incoming::When::kAnyTime));  // may be declared later
  c.incoming.FailOfClient(4, Cancelled("it is gone"));
  EXPECT(!c.Keeps(4, Incoming::When::kAnyTime));
}

TEST(BytesForABufferThatIsNotThereAnyMoreAreLetGo) {
  Arrivals c;
  EXPECT(!c.Keeps(5, Incoming::When::kDeclared));
}

}  // namespace
}  // namespace pathways::worker
