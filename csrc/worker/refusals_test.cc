// Bytes of buffers that were refused, and bytes that nobody announced.
#include <atomic>
#include <cstdlib>
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
  void OnTransferFailed(uint64_t, const Status&) override {}
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
    client->Send("to/h", key, bytes.data(), bytes.size(), [done](const Status& status) { done->set_value(status); });
    return done->get_future();
  }
  Status Await(std::future<Status> outcome) {
    if (outcome.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return DeadlineExceeded("no end");
    return outcome.get();
  }
  // When all that was posted before has been done.
  void Settle() {
    std::promise<void> done;
    host->Post([&] { done.set_value(); });
    done.get_future().wait();
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
  for (auto& outcome : refused) EXPECT_HAS(c.Await(std::move(outcome)).message(), "out of device memory");
  auto async = device->CreateAsyncBuffer({DType::kF32, {static_cast<int64_t>(c.bytes.size() / 4)}}, 0);
  EXPECT_OK(async.status());
  auto buffer = (*async)->TakeBuffer();
  EXPECT_OK(buffer.status());
  c.incoming.Declare(UploadKey(100), *std::move(async), kFromClient);
  EXPECT_OK(c.Await(c.Upload(UploadKey(100))));
  EXPECT_OK(pjrt::Fetch(*buffer).status());
}

TEST(WhatIsKeptForARefusedBufferGoesWithItsBytes) {
  Uploads c;
  for (uint64_t n = 1; n <= 20; ++n) {
    c.incoming.Refuse(UploadKey(n), kFromClient, ResourceExhausted("no room"));
    (void)c.Await(c.Upload(UploadKey(n)));
  }
  for (int i = 0; i < 2000 && c.incoming.expected() > 0; ++i) c.Settle();
  EXPECT_EQ(c.incoming.expected(), 0u);
  EXPECT_EQ(c.incoming.unannounced(), 0u);
}

TEST(AFailureToldByAnotherWayPoisonsAndWhatComesLaterIsLetGo) {
  NEED_PLUGIN(device);
  Uploads c;
  const auto declare = [&](uint64_t key) {
    auto async = device->CreateAsyncBuffer({DType::kF32, {static_cast<int64_t>(c.bytes.size() / 4)}}, 0);
    EXPECT_OK(async.status());
    auto buffer = (*async)->TakeBuffer();
    EXPECT_OK(buffer.status());
    c.incoming.Declare(key, *std::move(async), kFromClient);
    return *std::move(buffer);
  };
  const pjrt::Buffer before = declare(UploadKey(1));
  c.incoming.FailTransfer(UploadKey(1), DeadlineExceeded("61 s of silence"));
  c.incoming.FailTransfer(UploadKey(2), DeadlineExceeded("61 s of silence"));
  const pjrt::Buffer after = declare(UploadKey(2));
  for (const pjrt::Buffer* buffer : {&before, &after}) {
    EXPECT_HAS(pjrt::Fetch(*buffer).status().message(), "61 s of silence");
  }
  for (uint64_t n : {1, 2}) EXPECT_HAS(c.Await(c.Upload(UploadKey(n))).message(), "61 s of silence");
}

TEST(BytesThatNobodyAnnouncedHaveALimitOfTheirSenderOnly) {
  Incoming incoming;
  const std::vector<std::byte> piece(size_t{16} << 20);
  uint64_t key = 1;
  for (uint64_t sent = 0; sent < 2 * Incoming::kMaxEarlyBytes; sent += piece.size()) {
    incoming.OnBytes("c/1", UploadKey(key++), 0, piece.size(), piece, {});
  }
  EXPECT_EQ(incoming.unannounced_bytes("c/1"), Incoming::kMaxEarlyBytes);
  incoming.OnBytes("c/2", UploadKey(key++), 0, piece.size(), piece, {});
  EXPECT_EQ(incoming.unannounced_bytes("c/2"), piece.size());
  for (; key < 2 * Incoming::kMaxEarlyTransfers; ++key) incoming.OnBytes("c/3", UploadKey(key), 0, 0, {}, {});
  EXPECT_EQ(incoming.unannounced(), Incoming::kMaxEarlyTransfers);
}

}  // namespace
}  // namespace pathways::worker
