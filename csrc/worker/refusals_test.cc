// Bytes of buffers that were refused, and bytes that nobody announced.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>

#include "csrc/pjrt/test_support.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/worker/incoming.h"

namespace pathways::worker {
namespace {

class Nobody : public dataplane::DataSink {
 public:
  void OnBytes(std::string_view, uint64_t, uint64_t, uint64_t, std::span<const std::byte>,
               transport::BulkLease) override {}
  void OnTransferFailed(std::string_view, uint64_t, const Status&) override {}
  void OnSendFailed(const std::string&, uint64_t, const Status&) override {}
};

constexpr uint64_t UploadKey(uint64_t n) { return (uint64_t{1} << wire::kClientShift) | n; }

// A host with an Incoming, and a client that uploads to it.
struct Uploads {
  Incoming incoming;
  Nobody nobody;
  std::unique_ptr<dataplane::DataPlane> host, client;
  std::vector<char> bytes = std::vector<char>(size_t{9} << 20, 'x');

  Uploads() {
    EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
    dataplane::DataPlaneOptions options;
    options.curve.insecure = true;
    const std::string cluster = "refusals-" + std::to_string(::getpid());
    options.machine = "here";  // through shared memory
    options.membership = {cluster, "w/h", "", 0};
    options.bind_endpoint = "tcp://127.0.0.1:*";
    host = std::move(*dataplane::DataPlane::Start(options, &incoming));
    incoming.Attach(host.get());
    options.membership = {cluster, "c/1", "", 0};
    options.bind_endpoint.clear();
    client = std::move(*dataplane::DataPlane::Start(options, &nobody));
    EXPECT_OK(client->ConnectTo("h", host->endpoint(), "here"));
  }
  ~Uploads() {
    client->Stop();
    host->Stop();
  }
  std::future<Status> Upload(uint64_t key) {
    auto done = std::make_shared<std::promise<Status>>();
    client->Send("to/h", key, {bytes.data(), bytes.size()}, [done](const Status& status) { done->set_value(status); });
    return done->get_future();
  }
  Status Await(std::future<Status> outcome) {
    if (outcome.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return DeadlineExceeded("no end");
    return outcome.get();
  }
  pjrt::Buffer Declare(pjrt::Client* device, uint64_t key, uint32_t from_host) {
    auto async = device->CreateAsyncBuffer({DType::kF32, {static_cast<int64_t>(bytes.size() / 4)}}, 0);
    EXPECT_OK(async.status());
    auto buffer = (*async)->TakeBuffer();
    EXPECT_OK(buffer.status());
    incoming.Declare(key, *std::move(async), from_host);
    return *std::move(buffer);
  }
  // Buffers that wait for bytes or were refused, when all that was posted before has been done.
  size_t Expected() {
    std::promise<size_t> found;
    host->Post([&] { found.set_value(incoming.expected()); });
    return found.get_future().get();
  }
};

TEST(AnyNumberOfRefusedUploadsEndsAndTheNextArrives) {
  NEED_PLUGIN(device);
  Uploads c;
  std::vector<std::future<Status>> refused;
  for (uint64_t n = 1; n <= 60; ++n) {
    // Before its bytes come and after.
    if (n % 2 == 0) c.incoming.Refuse(UploadKey(n), kFromClient, ResourceExhausted("out of device memory"));
    refused.push_back(c.Upload(UploadKey(n)));
    if (n % 2 == 1) c.incoming.Refuse(UploadKey(n), kFromClient, ResourceExhausted("out of device memory"));
  }
  for (size_t i = 0; i < refused.size(); ++i) {
    const Status status = c.Await(std::move(refused[i]));
    // All bytes of the others may have come before the refusal. Then they were handed over, and are thrown away.
    if (i % 2 == 1 || !status.ok()) EXPECT_HAS(status.message(), "out of device memory");
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (c.Expected() > 0 && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(c.Expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
  auto async = device->CreateAsyncBuffer({DType::kF32, {static_cast<int64_t>(c.bytes.size() / 4)}}, 0);
  EXPECT_OK(async.status());
  auto buffer = (*async)->TakeBuffer();
  EXPECT_OK(buffer.status());
  c.incoming.Declare(UploadKey(100), *std::move(async), kFromClient);
  EXPECT_OK(c.Await(c.Upload(UploadKey(100))));
  EXPECT_OK(pjrt::Fetch(*buffer).status());
}

TEST(WhatNobodyAnnouncedYetDoesNotHoldUpWhatIsAwaited) {
  NEED_PLUGIN(device);
  Uploads c;
  std::vector<std::future<Status>> early;
  // More than the host keeps, so some are deferred.
  const uint64_t transfers = EarlyTransfers::kMaxKeptBytes / c.bytes.size() + 10;
  for (uint64_t n = 1; n <= transfers; ++n) early.push_back(c.Upload(UploadKey(n)));
  const pjrt::Buffer awaited = c.Declare(device, UploadKey(100), kFromClient);
  EXPECT_OK(c.Await(c.Upload(UploadKey(100))));
  EXPECT_OK(pjrt::Fetch(awaited).status());
  std::vector<pjrt::Buffer> late;
  for (uint64_t n = 1; n <= transfers; ++n) late.push_back(c.Declare(device, UploadKey(n), kFromClient));
  for (auto& outcome : early) EXPECT_OK(c.Await(std::move(outcome)));
  for (const pjrt::Buffer& buffer : late) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, pjrt::Fetch(buffer));
    EXPECT_EQ(std::memcmp(got.data(), c.bytes.data(), c.bytes.size()), 0);
  }
  EXPECT_EQ(c.Expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
}

TEST(DeferredTransfersThatNobodyWantsAnyMoreEnd) {
  Uploads c;
  const uint64_t kept = EarlyTransfers::kMaxKeptBytes / c.bytes.size();
  for (uint64_t n = 1; n <= kept; ++n) EXPECT_OK(c.Await(c.Upload(UploadKey(n))));
  std::future<Status> refused = c.Upload(UploadKey(100)), waiting = c.Upload(UploadKey(101));
  c.incoming.Refuse(UploadKey(100), kFromClient, ResourceExhausted("no room"));
  EXPECT_HAS(c.Await(std::move(refused)).message(), "no room");
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  c.incoming.FailOfClient(1, Cancelled("the client is gone"));
  // "its", if pieces were still on their way: those are let go as they come.
  EXPECT_HAS(c.Await(std::move(waiting)).message(), " client is gone");
  EXPECT_EQ(c.Expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
}

TEST(WhatIsKeptForARefusedBufferGoesWithItsBytes) {
  Uploads c;
  for (uint64_t n = 1; n <= 20; ++n) {
    c.incoming.Refuse(UploadKey(n), kFromClient, ResourceExhausted("no room"));
    (void)c.Await(c.Upload(UploadKey(n)));
  }
  for (int i = 0; i < 2000 && c.Expected() > 0; ++i) {
  }
  EXPECT_EQ(c.Expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
}

TEST(AFailureToldByAnotherWayPoisonsAndWhatComesLaterIsLetGo) {
  NEED_PLUGIN(device);
  Uploads c;
  const auto declare = [&](uint64_t key) { return c.Declare(device, key, kFromClient); };
  const pjrt::Buffer before = declare(UploadKey(1));
  c.incoming.FailTransfer(UploadKey(1), kFromClient, DeadlineExceeded("61 s of silence"));
  c.incoming.FailTransfer(UploadKey(2), kFromClient, DeadlineExceeded("61 s of silence"));
  const pjrt::Buffer after = declare(UploadKey(2));
  for (const pjrt::Buffer* buffer : {&before, &after}) {
    EXPECT_HAS(pjrt::Fetch(*buffer).status().message(), "61 s of silence");
  }
  for (uint64_t n : {1, 2}) EXPECT_HAS(c.Await(c.Upload(UploadKey(n))).message(), "61 s of silence");
}

// Their shared memory is gone: an error, before the buffer is announced and after, and whole or in part.
TEST(BytesThatCannotBeReadFailTheirTransfer) {
  NEED_PLUGIN(device);
  Uploads c;
  const auto declare = [&](uint64_t n) { return c.Declare(device, UploadKey(n), kFromClient); };
  const auto send = [&](uint64_t n, uint64_t size) {
    wire::Data data;
    data.key = UploadKey(n);
    data.size = size;
    data.total = c.bytes.size();
    data.segment = "/ptpathways-refusals-" + std::to_string(::getpid()) + "-1-424242";
    data.release = n;
    transport::Frames frames;
    frames.emplace_back(wire::Encode(data));
    EXPECT_OK(c.client->SendMessage("to/h", std::move(frames)));
  };
  const pjrt::Buffer whole = declare(1), part = declare(2);
  for (const uint64_t n : {1, 3}) send(n, c.bytes.size());
  for (const uint64_t n : {2, 4}) send(n, 4096);
  c.incoming.Refuse(UploadKey(6), kFromClient, Cancelled("seen"));
  EXPECT_HAS(c.Await(c.Upload(UploadKey(6))).message(), "seen");  // and all that was sent before
  for (const pjrt::Buffer* buffer : {&whole, &part}) {
    EXPECT_HAS(pjrt::Fetch(*buffer).status().message(), "cannot be opened");
  }
  const pjrt::Buffer early = declare(3), early_part = declare(4);
  for (const pjrt::Buffer* buffer : {&early, &early_part}) {
    EXPECT_HAS(pjrt::Fetch(*buffer).status().message(), "cannot be opened");
  }
  // The rest of what came in part is let go.
  for (const uint64_t n : {2, 4}) EXPECT_HAS(c.Await(c.Upload(UploadKey(n))).message(), "cannot be opened");
}

// The host waits for bytes of host 1, "f"; host 2, "g", is the enemy.
struct Forgery : Uploads {
  std::unique_ptr<dataplane::DataPlane> honest, enemy;

  Forgery() {
    incoming.SetHosts({"h", "f", "g"});
    dataplane::DataPlaneOptions options;
    options.curve.insecure = true;
    options.machine = "here";
    for (const auto& [plane, name] : {std::pair(&honest, "w/f"), std::pair(&enemy, "w/g")}) {
      options.membership = {"refusals-" + std::to_string(::getpid()), name, "", 0};
      *plane = std::move(*dataplane::DataPlane::Start(options, &nobody));
      EXPECT_OK((*plane)->ConnectTo("h", host->endpoint(), "here"));
    }
  }
  ~Forgery() {
    honest->Stop();
    enemy->Stop();
  }
  pjrt::Buffer Declare(pjrt::Client* device, uint64_t key) { return Uploads::Declare(device, key, 1); }
  void SendBytes(dataplane::DataPlane& from, uint64_t key, const std::vector<char>& what) {
    from.Send("to/h", key, {what.data(), what.size()}, [](const Status&) {});
  }
  // When what `from` has sent so far has been looked at: its messages arrive in order, and an own transfer ends.
  void Heard(dataplane::DataPlane& from, uint64_t key) {
    incoming.Refuse(key, &from == enemy.get() ? 2 : 1, Cancelled("seen"));
    auto done = std::make_shared<std::promise<Status>>();
    from.Send("to/h", key, {bytes.data(), bytes.size()}, [done](const Status& status) { done->set_value(status); });
    EXPECT_HAS(Await(done->get_future()).message(), "seen");
  }
};

TEST(AHostFillsAndFailsNoTransferOfAnother) {
  NEED_PLUGIN(device);
  Forgery c;
  const std::vector<char> lies(c.bytes.size(), 'L');
  // Before the buffer is announced and after, with bytes and with bad news.
  c.SendBytes(*c.enemy, UploadKey(1), lies);
  c.enemy->SendFailure("to/h", UploadKey(2), Internal("forged"));
  c.Heard(*c.enemy, UploadKey(50));
  const pjrt::Buffer early = c.Declare(device, UploadKey(1)), failed = c.Declare(device, UploadKey(2)),
                     late = c.Declare(device, UploadKey(3)), told = c.Declare(device, UploadKey(4));
  (void)c.Expected();  // now all of them are announced
  // More than a sender may have on the way: what is refused makes room again.
  for (const uint64_t n : {3, 4}) c.SendBytes(*c.enemy, UploadKey(n), lies);
  c.enemy->SendFailure("to/h", UploadKey(3), Internal("forged"));
  c.incoming.FailTransfer(UploadKey(4), 2, Internal("forged"));
  c.incoming.FailTransfer(UploadKey(4), kFromClient, Internal("forged"));
  c.Heard(*c.enemy, UploadKey(51));
  for (uint64_t n = 1; n <= 4; ++n) c.SendBytes(*c.honest, UploadKey(n), c.bytes);
  std::vector<float> wanted(c.bytes.size() / 4);
  std::memcpy(wanted.data(), c.bytes.data(), c.bytes.size());
  for (const pjrt::Buffer* buffer : {&early, &failed, &late, &told}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> got, pjrt::Fetch(*buffer));
    EXPECT(got == wanted);
  }
}

TEST(WhatAFormerHostOfANameHasSentIsNotALaterOnes) {
  Forgery c;
  const std::vector<std::byte> lies(64);
  std::promise<void> done;
  c.host->Post([&] {
    c.incoming.OnPeer("w/a", 5);
    c.incoming.OnBytes("w/a", UploadKey(1), 0, lies.size(), lies, {});
    c.incoming.OnBytes("w/b", UploadKey(1), 0, lies.size(), lies, {});
    c.incoming.OnPeer("w/a", 5);  // it has called again
    EXPECT_EQ(c.incoming.unannounced_bytes("w/a"), lies.size());
    c.incoming.OnPeer("w/a", 9);
    EXPECT_EQ(c.incoming.unannounced(), 1);  // what another has sent
    c.incoming.OnBytes("w/a", UploadKey(2), 0, lies.size(), lies, {});
    c.incoming.OnBytes("to/a", UploadKey(3), 0, lies.size(), lies, {});
    EXPECT_EQ(c.incoming.unannounced(), 3);
    done.set_value();
  });
  done.get_future().wait();
  c.incoming.SetHosts({"a", "b"});
  std::promise<void> known;
  c.host->Post([&] {
    EXPECT_EQ(c.incoming.unannounced(), 3);
    known.set_value();
  });
  known.get_future().wait();
  c.incoming.SetHosts({"a", "b", "a"});
  std::promise<void> renewed;
  c.host->Post([&] {
    EXPECT_EQ(c.incoming.unannounced(), 2);  // what was called "to/a" is another host now
    renewed.set_value();
  });
  renewed.get_future().wait();
}

TEST(BytesThatNobodyAnnouncedHaveALimitOfTheirSenderOnly) {
  Incoming incoming;
  const std::vector<std::byte> piece(size_t{16} << 20), small(transport::kBulkInlineBytes);
  uint64_t key = 1;
  for (uint64_t sent = 0; sent < 2 * EarlyTransfers::kMaxSmallBytes; sent += piece.size()) {
    incoming.OnBytes("c/1", UploadKey(key++), 0, piece.size(), piece, {});
  }
  EXPECT_EQ(incoming.unannounced_bytes("c/1"), EarlyTransfers::kMaxKeptBytes);  // the others are deferred
  for (uint64_t sent = 0; sent < 2 * EarlyTransfers::kMaxSmallBytes; sent += small.size()) {
    incoming.OnBytes("c/1", UploadKey(key++), 0, small.size(), small, {});
  }
  EXPECT_EQ(incoming.unannounced_bytes("c/1"), EarlyTransfers::kMaxSmallBytes);
  incoming.OnBytes("c/2", UploadKey(key++), 0, piece.size(), piece, {});
  EXPECT_EQ(incoming.unannounced_bytes("c/2"), piece.size());
  const size_t before = incoming.unannounced();
  for (size_t n = 0; n < 2 * EarlyTransfers::kMaxTransfers; ++n)
    incoming.OnBytes("c/3", UploadKey(key++), 0, 0, {}, {});
  EXPECT_EQ(incoming.unannounced(), before + EarlyTransfers::kMaxTransfers);
  for (int n = 0; n < 10; ++n) incoming.OnBytes("c/2", UploadKey(key++), 0, 0, {}, {});
  EXPECT_EQ(incoming.unannounced(), before + EarlyTransfers::kMaxTransfers + 10);
}

// A client has sent more of what nobody announced than is kept: another one's uploads arrive, its own end with an
// error.
TEST(TooManyUnannouncedTransfersAreTheirSendersLossOnly) {
  NEED_PLUGIN(device);
  Uploads c;
  const auto send = [&](dataplane::DataPlane& from, uint64_t key) {
    from.Send("to/h", key, {c.bytes.data(), 4}, [](const Status&) {});
  };
  const auto declare = [&](uint64_t key) {
    auto async = device->CreateAsyncBuffer({DType::kF32, {1}}, 0);
    EXPECT_OK(async.status());
    auto buffer = (*async)->TakeBuffer();
    EXPECT_OK(buffer.status());
    c.incoming.Declare(key, *std::move(async), kFromClient);
    return *std::move(buffer);
  };
  const uint64_t too_many = EarlyTransfers::kMaxTransfers + 100;
  c.host->Post([&] {  // as they would come: senders let small transfers overtake each other
    const auto bytes = std::as_bytes(std::span(c.bytes)).first(4);
    for (uint64_t n = 1; n <= too_many; ++n) c.incoming.OnBytes("c/1", UploadKey(n), 0, 4, bytes, {});
  });
  dataplane::DataPlaneOptions options;
  options.curve.insecure = true;
  options.machine = "here";
  options.membership = {"refusals-" + std::to_string(::getpid()), "c/2", "", 0};
  const auto other = *dataplane::DataPlane::Start(options, &c.nobody);
  EXPECT_OK(other->ConnectTo("h", c.host->endpoint(), "here"));
  const auto others_key = [](uint64_t n) { return (uint64_t{2} << wire::kClientShift) | n; };
  std::vector<pjrt::Buffer> others;
  for (uint64_t n = 1; n <= 100; ++n) {
    if (n % 2 == 0) send(*other, others_key(n));
    others.push_back(declare(others_key(n)));
    if (n % 2 == 1) send(*other, others_key(n));
  }
  for (const pjrt::Buffer& buffer : others) EXPECT_OK(pjrt::Fetch(buffer).status());
  const pjrt::Buffer kept = declare(UploadKey(1)), let_go = declare(UploadKey(too_many));
  EXPECT_OK(pjrt::Fetch(kept).status());
  EXPECT_HAS(pjrt::Fetch(let_go).status().message(), "expected at most 65536 transfers of one sender");
  c.incoming.FailOfClient(1, Cancelled("the client is gone"));
  EXPECT_EQ(c.Expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
  other->Stop();
}

}  // namespace
}  // namespace pathways::worker
