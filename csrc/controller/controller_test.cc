// Clients in the controller's process: when their sinks are called, and when not.
#include "csrc/controller/controller.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::controller {
namespace {

std::unique_ptr<Controller> StartController() {
  EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
  ControllerOptions options;
  options.cluster.cluster = "controller-test";
  options.cluster.build = "test";
  auto started = Controller::Start(options);
  EXPECT_OK(started.status());
  return *std::move(started);
}

std::string HelloText() {
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = "test";
  hello.name = "local";
  return wire::Encode(hello);
}

TEST(TheSinkOfALocalClientIsNotCalledTwiceAtATimeNorAfterItLeft) {
  for (int round = 0; round < 20; ++round) {
    const auto controller = StartController();
    auto inside = std::make_unique<std::atomic<int>>(0);
    auto calls = std::make_unique<std::atomic<int>>(0);
    const Connection connection = controller->AttachLocal([&](std::string, std::vector<Payload>) {
      EXPECT_EQ(inside->fetch_add(1), 0);
      std::this_thread::yield();
      ++*calls;
      inside->fetch_sub(1);
    });
    controller->FromLocal(connection, HelloText(), {});
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t n = 1; !stop; ++n) {
          wire::Query query;
          query.kind = wire::QueryKind::kStatus;
          query.request = (uint64_t{1} << wire::kClientShift) | (3 * n + t);
          controller->FromLocal(connection, wire::Encode(query), {});
        }
      });
    }
    while (calls->load() < 200) std::this_thread::yield();
    controller->DetachLocal(connection);
    inside.reset();  // as the client's tables are
    calls.reset();
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(WhatASinkSendsIsAnsweredAfterItHasReturned) {
  const auto controller = StartController();
  Connection connection;
  int inside = 0, calls = 0;  // the control thread's
  std::promise<void> answered;
  connection = controller->AttachLocal([&](std::string, std::vector<Payload>) {
    EXPECT_EQ(++inside, 1);
    if (++calls == 1) {
      wire::Query query;
      query.kind = wire::QueryKind::kStatus;
      query.request = (uint64_t{1} << wire::kClientShift) | 1;
      controller->FromLocal(connection, wire::Encode(query), {});
    } else {
      answered.set_value();
    }
    --inside;
  });
  controller->FromLocal(connection, HelloText(), {});
  answered.get_future().wait();
  controller->DetachLocal(connection);
}

TEST(ALocalClientMayLeaveWithinItsSink) {
  const auto controller = StartController();
  Connection connection;
  std::atomic<int> calls{0};
  std::promise<void> left;
  connection = controller->AttachLocal([&](std::string, std::vector<Payload>) {
    ++calls;
    controller->DetachLocal(connection);
    left.set_value();
  });
  controller->FromLocal(connection, HelloText(), {});
  left.get_future().wait();
  controller->FromLocal(connection, HelloText(), {});
  EXPECT_EQ(calls.load(), 1);
}

TEST(NoSinkIsCalledWithinACallOfItsClient) {
  const auto controller = StartController();
  std::mutex held_while_sending;
  std::promise<void> welcomed;
  const Connection connection = controller->AttachLocal([&](std::string, std::vector<Payload>) {
    std::lock_guard lock(held_while_sending);
    welcomed.set_value();
  });
  {
    std::lock_guard lock(held_while_sending);
    controller->FromLocal(connection, HelloText(), {});
  }
  welcomed.get_future().wait();
  controller->DetachLocal(connection);
}

}  // namespace
}  // namespace pathways::controller
