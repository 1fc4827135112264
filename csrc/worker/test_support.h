// What tests of a worker's parts share: a host without a controller, whose messages are kept.
//
// Ownership: one for each test. Threads: messages may come from any thread.
#ifndef PTPATHWAYS_WORKER_TEST_SUPPORT_H_
#define PTPATHWAYS_WORKER_TEST_SUPPORT_H_

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "csrc/pjrt/test_support.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"
#include "csrc/worker/buffers.h"

namespace pathways::worker {

class KeptMessages : public Outbox {
 public:
  std::atomic<bool> closed{false};  // this host ends

  Status Send(transport::Frames frames) override {
    if (closed) return Unavailable("the line is closed");
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(frames));
    return OkStatus();
  }
  bool ending() const override { return closed; }

  // All messages of a type so far, in order.
  template <typename Body>
  std::vector<Body> All() const {
    std::lock_guard lock(mutex_);
    std::vector<Body> found;
    for (const transport::Frames& frames : messages_) {
      const Result<wire::Head> head = wire::DecodeHead(frames[0].bytes());
      if (!head.ok() || head->header.type != Body::kType) continue;
      Result<Body> body = wire::Decode<Body>(head->body);
      EXPECT_OK(body.status());
      if (body.ok()) found.push_back(*std::move(body));
    }
    return found;
  }
  // The same when there are `count`, or when waiting for them takes too long.
  template <typename Body>
  std::vector<Body> Await(size_t count = 1) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::vector<Body> found = All<Body>();
    for (; found.size() < count && std::chrono::steady_clock::now() < deadline; found = All<Body>()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(found.size(), count);
    found.resize(count);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<transport::Frames> messages_;  // guarded by mutex_
};

// Host 1, "h", of a cluster, whose devices are 4 and those after it.
struct TestHost {
  KeptMessages messages;
  HostContext context{"h", "cpu", messages};
  std::unique_ptr<transport::Reactor> engine;

  explicit TestHost(std::shared_ptr<pjrt::Client> client = nullptr, std::vector<int64_t> limits = {0, 0}) {
    context.SetDevices(std::move(client), std::move(limits));
    context.Joined("parts", 1, 4);
    engine = *transport::Reactor::Start({.name = "pw-engine"});
    context.SetThread(engine.get());
  }
  // Runs it on the engine's thread, after all that was posted before.
  template <typename Task>
  void OnEngine(Task task) {
    std::promise<void> done;
    engine->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
};

// The same with a data connection, and its buffers.
struct TestHostWithBuffers : TestHost {
  ClusterView cluster;
  RootCauses causes;
  Incoming incoming;
  std::unique_ptr<dataplane::DataPlane> data = StartData();
  Buffers buffers{context, cluster, causes, incoming, *data};

  using TestHost::TestHost;
  ~TestHostWithBuffers() {
    engine->Stop();
    data->Stop();
  }
  // A value of one shard, as its client puts it.
  Status Put(uint64_t id, std::string bytes, uint32_t device = 4) {
    wire::Put put;
    put.buffer = put.key = id;
    put.device = device;
    put.type = {DType::kU8, {static_cast<int64_t>(bytes.size())}};
    put.inline_data = std::move(bytes);
    return buffers.Put(put);
  }
  // What its client gets.
  wire::Fetched Fetch(uint64_t id) {
    const size_t before = messages.All<wire::Fetched>().size();
    wire::Fetch fetch;
    fetch.buffer = id;
    OnEngine([&] { buffers.Fetch(fetch); });
    return messages.Await<wire::Fetched>(before + 1).back();
  }

 private:
  std::unique_ptr<dataplane::DataPlane> StartData() {
    EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
    dataplane::DataPlaneOptions options;
    options.curve.insecure = true;
    options.membership = {"parts-" + std::to_string(::getpid()), "w/h", "", 0};
    auto made = *dataplane::DataPlane::Start(options, &incoming);
    incoming.Attach(made.get());
    return made;
  }
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_TEST_SUPPORT_H_
