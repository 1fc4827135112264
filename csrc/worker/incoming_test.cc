// Bytes that nobody waits for any more are let go.
#include "csrc/worker/incoming.h"

#include <cstdlib>
#include <future>
#include <numeric>

#include "csrc/pjrt/test_support.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::worker {
namespace {

using pjrt::Client;
using pjrt::SharedClient;

constexpr uint64_t KeyOf(uint64_t client) { return (client << wire::kClientShift) | 7; }

struct Arrivals {
  Incoming incoming;
  std::unique_ptr<dataplane::DataPlane> data;
  std::shared_ptr<std::vector<std::byte>> bytes = std::make_shared<std::vector<std::byte>>(16);

  Arrivals() {
    const char* const library = std::getenv("PW_LIBZMQ");
    EXPECT_OK(transport::LoadZmq(library != nullptr ? library : ""));
    dataplane::DataPlaneOptions options;
    options.membership = {"incoming-test", "w/test", "", 0};
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

TEST(ANumberIsAnotherClientsOnceALaterSessionHasIt) {
  Arrivals c;
  c.incoming.FailOfClient(3, Cancelled("it is gone"), 70);
  c.incoming.OnPeer("c/3", 70);  // its own data connection comes late
  EXPECT(c.incoming.IsGone(3));
  c.incoming.OnPeer("c/4", 90);
  EXPECT(c.incoming.IsGone(3));
  c.incoming.OnPeer("c/3", 80);
  EXPECT(!c.incoming.IsGone(3));
}

TEST(WhatALostHostShouldHaveSentFailsWhetherDeclaredBeforeOrAfter) {
  NEED_PLUGIN(client);
  Arrivals c;
  const TensorType type{DType::kF32, {4}};
  const auto declare = [&](uint64_t key, uint32_t from_host, bool in_pieces) {
    auto async = client->CreateAsyncBuffer(type, 0);
    EXPECT_OK(async.status());
    auto buffer = (*async)->TakeBuffer();
    EXPECT_OK(buffer.status());
    if (in_pieces) {
      c.incoming.Assemble({{key, from_host, {{0}, {2}}}, {key + 1, 9, {{2}, {2}}}}, *std::move(async));
    } else {
      c.incoming.Declare(key, *std::move(async), from_host);
    }
    return *std::move(buffer);
  };
  const pjrt::Buffer before = declare(10, 1, false);
  const pjrt::Buffer other = declare(20, 2, false);
  c.incoming.Deliver(40, *c.bytes, c.bytes);  // came before the host was lost
  c.incoming.FailFromHost(1, Unavailable("host 'h1' is lost"));
  const pjrt::Buffer after = declare(30, 1, false), early = declare(40, 1, false), pieces = declare(50, 1, true);
  for (const pjrt::Buffer* buffer : {&before, &after, &pieces}) {
    EXPECT_HAS(pjrt::Fetch(*buffer).status().message(), "host 'h1' is lost");
  }
  EXPECT_OK(pjrt::Fetch(early).status());
  c.incoming.Deliver(20, *c.bytes, c.bytes);
  EXPECT_OK(pjrt::Fetch(other).status());
}

TEST(ABufferIsPutTogetherFromBoxes) {
  NEED_PLUGIN(client);
  Arrivals c;
  const TensorType type{DType::kF32, {2, 4}};
  ASSERT_OK_AND_ASSIGN(auto async, client->CreateAsyncBuffer(type, 0));
  ASSERT_OK_AND_ASSIGN(const pjrt::Buffer buffer, async->TakeBuffer());
  std::vector<float> values(8);
  std::iota(values.begin(), values.end(), 1.0f);
  std::vector<Incoming::Piece> pieces;
  std::vector<std::shared_ptr<std::vector<std::byte>>> halves;
  for (uint64_t i = 0; i < 2; ++i) {
    const BoxView columns{{0, static_cast<int64_t>(2 * i)}, {2, 2}};
    pieces.push_back({60 + i, 9, columns});
    halves.push_back(std::make_shared<std::vector<std::byte>>(16));
    GatherBox(type, columns, values.data(), 0, 16, halves.back()->data());
  }
  c.incoming.Assemble(pieces, std::move(async));
  for (uint64_t i : {1, 0}) c.incoming.Deliver(60 + i, *halves[i], halves[i]);
  ASSERT_OK_AND_ASSIGN(const auto arrived, pjrt::Fetch(buffer));
  EXPECT(arrived == values);
}

TEST(BytesForABufferThatIsNotThereAnyMoreAreLetGo) {
  Arrivals c;
  EXPECT(!c.Keeps(5, Incoming::When::kDeclared));
}

}  // namespace
}  // namespace pathways::worker
