// What tests of a session and of its parts share: a link without a controller, whose messages are kept.
//
// Ownership: one for each test; links share it. Threads: messages may come from any thread.
#ifndef PTPATHWAYS_CLIENT_TEST_SUPPORT_H_
#define PTPATHWAYS_CLIENT_TEST_SUPPORT_H_

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/link.h"
#include "csrc/client/pending.h"
#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

// A cluster of hosts h0, h1, ... with one device each.
inline std::vector<wire::HostDescription> HostsWithDevices(uint32_t count) {
  std::vector<wire::HostDescription> hosts(count);
  for (uint32_t i = 0; i < count; ++i) {
    hosts[i].host = hosts[i].first_device = i;
    hosts[i].name = "h" + std::to_string(i);
    hosts[i].data_endpoint = "tcp://127.0.0.1:9";
    hosts[i].devices.resize(1);
  }
  return hosts;
}

inline wire::Welcome Welcomed() {
  wire::Welcome welcome;
  welcome.peer = 1;
  welcome.cluster = "session-test";
  welcome.heartbeat_interval_ms = 500;
  welcome.hosts = HostsWithDevices(1);
  return welcome;
}

// What the test sees of a link, which it outlives.
struct Wire {
  Link::Sink sink;
  std::mutex mutex;
  std::vector<std::string> sent;  // guarded by mutex
  std::promise<std::thread::id> closed;

  template <typename Body>
  std::vector<Body> All() {
    std::lock_guard lock(mutex);
    std::vector<Body> bodies;
    for (const std::string& frame : sent) {
      const auto head = wire::DecodeHead(frame);
      if (head.ok() && head->header.type == Body::kType) bodies.push_back(*wire::Decode<Body>(head->body));
    }
    return bodies;
  }
  template <typename Body>
  Body Last() {
    const std::vector<Body> bodies = All<Body>();
    return bodies.empty() ? Body() : bodies.back();
  }
};

// Answers HELLO as Welcomed() says.
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

// A core without a session, in a cluster of two hosts; for parts whose work makes no handles.
struct TestCore {
  explicit TestCore(SessionOptions options = {}) : core(std::move(options), nullptr) {
    core.link = std::make_unique<WireLink>(wire);
    std::lock_guard lock(core.mutex);
    EXPECT(core.hosts.Update(HostsWithDevices(2), {}));
  }
  // As Parts::End does it.
  template <typename Part>
  void Lose(Part& part, const Loss& loss) PW_NO_THREAD_SAFETY {
    Endings ended;
    {
      std::lock_guard lock(core.mutex);
      part.Fail(loss, ended);
    }
    for (const auto& [event, outcome] : ended) event->Set(outcome);
  }

  const std::shared_ptr<Wire> wire = std::make_shared<Wire>();
  Core core;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_TEST_SUPPORT_H_
