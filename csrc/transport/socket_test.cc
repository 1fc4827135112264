// Sockets under many threads, lost and unknown peers, limits, frames.
#include "csrc/transport/socket.h"

#include <sys/stat.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

Result<std::shared_ptr<Socket>> OpenKind(SocketKind kind, const std::string& identity = "") {
  return Socket::Open({.kind = kind, .identity = identity, .curve = {.insecure = true}});
}

// A bound ROUTER and a connected DEALER, each on a reactor of its own.
struct Pair {
  RuntimeDirectory directory;
  std::shared_ptr<Socket> router, dealer;
  std::unique_ptr<Reactor> router_reactor, dealer_reactor;

  Status Start(SocketHandler* at_router, SocketHandler* at_dealer, SocketOptions router_options = {},
               SocketOptions dealer_options = {}, std::string endpoint = "") {
    if (endpoint.empty()) endpoint = directory.Ipc("s");
    router_options.kind = SocketKind::kRouter;
    dealer_options.kind = SocketKind::kDealer;
    dealer_options.identity = "dealer";
    PW_ASSIGN_OR_RETURN(router, Socket::Open(router_options));
    PW_ASSIGN_OR_RETURN(dealer, Socket::Open(dealer_options));
    PW_ASSIGN_OR_RETURN(router_reactor, Reactor::Start({.name = "router"}));
    PW_ASSIGN_OR_RETURN(dealer_reactor, Reactor::Start({.name = "dealer"}));
    PW_RETURN_IF_ERROR(router_reactor->Add(router, at_router));
    PW_RETURN_IF_ERROR(dealer_reactor->Add(dealer, at_dealer));
    PW_ASSIGN_OR_RETURN(std::string bound, router->Bind(endpoint));
    return dealer->Connect(bound);
  }
  ~Pair() {
    if (dealer) dealer->Close();
    if (router) router->Close();
  }
};

void Ignore(Socket&, std::string_view, Frames&) {}

// Four threads send on one socket while its reactor receives the echoes of everything, so that sends and receives race
// for the mailbox all the time. A lost wake-up shows as a count that is never reached.
TEST(ManyThreadsSendWhileOneReceives) {
  ASSERT_OK(UseZmq());
  constexpr int kThreads = 4;
  constexpr uint64_t kPerThread = 50000;
  Handler echo(
      [](Socket& s, std::string_view peer, Frames& frames) { EXPECT_OK(s.Send(peer, std::span<Frame>(frames))); });
  Counter back;
  std::vector<uint64_t> next(kThreads, 0);
  std::atomic<int> disorder{0};
  Handler collect([&](Socket&, std::string_view, Frames& frames) {
    uint64_t value = 0;
    std::memcpy(&value, frames[0].data(), sizeof(value));
    if (next[value >> 32]++ != (value & 0xffffffff)) ++disorder;
    back.Add();
  });
  Pair pair;
  ASSERT_OK(pair.Start(&echo, &collect));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kPerThread; ++i) {
        const uint64_t value = t << 32 | i;
        EXPECT_OK(pair.dealer->Send("", Frame(std::string(reinterpret_cast<const char*>(&value), sizeof(value)))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(back.WaitFor(kThreads * kPerThread, std::chrono::seconds(120)));
  EXPECT_EQ(back.value(), kThreads * kPerThread);
  EXPECT_EQ(disorder.load(), 0);
}

// The opposite regime: the receiver sleeps before nearly every message, and a second sender keeps touching its socket
// at the moment an answer arrives. Each round waits for its answer, so a lost wake-up stops the test.
TEST(SleepingReceiverIsAlwaysWoken) {
  ASSERT_OK(UseZmq());
  Counter back;
  Handler echo([](Socket& s, std::string_view peer, Frames& frames) {
    if (frames[0].bytes() == "ping") EXPECT_OK(s.Send(peer, std::span<Frame>(frames)));
  });
  Handler collect([&](Socket&, std::string_view, Frames&) { back.Add(); });
  Pair pair;
  ASSERT_OK(pair.Start(&echo, &collect));
  std::atomic<bool> stop{false};
  std::thread noise([&] {
    std::minstd_rand random(7);
    while (!stop.load()) {
      EXPECT_OK(pair.dealer->Send("", Frame("noise")));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));  // spreads the sends over the round trip
    }
  });
  for (uint64_t round = 1; round <= 3000; ++round) {
    EXPECT_OK(pair.dealer->Send("", Frame("ping")));
    if (!back.WaitFor(round)) {
      EXPECT_EQ(back.value(), round);
      break;
    }
  }
  stop = true;
  noise.join();
}

TEST(RouterRefusesUnknownPeer) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto router, OpenKind(SocketKind::kRouter));
  EXPECT_EQ(router->Send("nobody", Frame("x")).code(), Code::kNotFound);
  EXPECT_HAS(router->Send("no\x01", Frame("x")).ToString(), "no\\x01");
  EXPECT_EQ(router->Send("", Frame("x")).code(), Code::kInvalidArgument);
  EXPECT_EQ(router->Send("peer", Frames()).code(), Code::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(auto dealer, OpenKind(SocketKind::kDealer));
  EXPECT_EQ(dealer->Send("peer", Frame("x")).code(), Code::kInvalidArgument);
  dealer->Close();
  dealer->Close();
  EXPECT_EQ(dealer->Send("", Frame("x")).code(), Code::kUnavailable);
  EXPECT_EQ(dealer->Connect("inproc://x").code(), Code::kUnavailable);
  EXPECT_EQ(dealer->Bind("inproc://x").status().code(), Code::kUnavailable);
}

TEST(FullPeerIsAnErrorNotAWait) {
  ASSERT_OK(UseZmq());
  ASSERT_OK_AND_ASSIGN(auto dealer, Socket::Open({.kind = SocketKind::kDealer, .send_hwm = 10}));
  RuntimeDirectory directory;
  ASSERT_OK(dealer->Connect(directory.Ipc("nobody")));
  Status status;
  int sent = 0;
  for (; sent < 100 && status.ok(); ++sent) status = dealer->Send("", Frame("x"));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_EQ(sent, 11);
}

TEST(OversizedMessageDisconnectsItsSender) {
  ASSERT_OK(UseZmq());
  Counter arrived, lost;
  Handler at_router(
      [&](Socket&, std::string_view, Frames& frames) {
        EXPECT(frames[0].size() <= 1000);
        arrived.Add();
      },
      [&](Socket&, const PeerEvent& event) {
        if (event.kind == PeerEventKind::kDisconnected && event.identity == "dealer") lost.Add();
      });
  Handler at_dealer(&Ignore);
  Pair pair;
  ASSERT_OK(pair.Start(&at_router, &at_dealer, {.max_message_bytes = 1000}));
  EXPECT_OK(pair.dealer->Send("", Frame(std::string(1000, 'x'))));
  ASSERT(arrived.WaitFor(1));
  EXPECT_OK(pair.dealer->Send("", Frame(std::string(1001, 'x'))));
  ASSERT(lost.WaitFor(1));
  EXPECT_EQ(arrived.value(), 1);
}

int SilentRole(const std::string& endpoint) {
  if (!UseZmq().ok()) return 2;
  auto socket = Socket::Open({.kind = SocketKind::kDealer,
                              .identity = "victim",
                              .heartbeat_interval = std::chrono::milliseconds(50),
                              .heartbeat_timeout = std::chrono::milliseconds(1000),
                              .curve = {.insecure = true}});
  if (!socket.ok() || !(*socket)->Connect(endpoint).ok()) return 3;
  for (int i = 0; i < 100; ++i) {
    if (!(*socket)->Send("", Frame("hello")).ok()) return 4;
  }
  ::pause();
  return 0;
}
const RoleRegistration silent_role("silent", &SilentRole);

void NoticeKill(const std::string& endpoint) {
  Counter messages, lost;
  std::chrono::steady_clock::time_point killed, noticed;
  Handler handler(
      [&](Socket&, std::string_view peer, Frames&) {
        EXPECT_EQ(lost.value(), 0);  // a peer's messages come before its loss
        EXPECT_EQ(peer, "victim");
        messages.Add();
      },
      [&](Socket&, const PeerEvent& event) {
        if (event.kind != PeerEventKind::kDisconnected) return;
        EXPECT_EQ(event.identity, "victim");
        noticed = std::chrono::steady_clock::now();
        lost.Add();
      });
  ASSERT_OK_AND_ASSIGN(auto router, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "router"}));
  ASSERT_OK(reactor->Add(router, &handler));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(endpoint));
  Child child("silent", bound);
  ASSERT(messages.WaitFor(100));
  killed = std::chrono::steady_clock::now();
  child.Kill();
  ASSERT(lost.WaitFor(1));
  std::printf("  killed peer noticed after %.2f ms\n",
              std::chrono::duration<double, std::milli>(noticed - killed).count());
  // libzmq removes the route right after its notice.
  const auto until = std::chrono::steady_clock::now() + kPatience;
  Status send;
  while (send.ok() && std::chrono::steady_clock::now() < until) send = router->Send("victim", Frame("x"));
  EXPECT_EQ(send.code(), Code::kNotFound);
  router->Close();
}

TEST(KilledPeerIsNoticed) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  NoticeKill(directory.Ipc("kill"));
  NoticeKill("tcp://127.0.0.1:*");
}

// A stopped process keeps its connection open; only heartbeats tell.
TEST(HungPeerIsNoticedByHeartbeats) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  Counter messages, lost;
  Handler handler([&](Socket&, std::string_view, Frames&) { messages.Add(); },
                  [&](Socket&, const PeerEvent& event) {
                    if (event.kind == PeerEventKind::kDisconnected && event.identity == "victim") lost.Add();
                  });
  ASSERT_OK_AND_ASSIGN(auto router, Socket::Open({.kind = SocketKind::kRouter}));  // its callers' pings say how long
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "router"}));
  ASSERT_OK(reactor->Add(router, &handler));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(directory.Ipc("hung")));
  Child child("silent", bound);
  ASSERT(messages.WaitFor(100));
  EXPECT(!lost.WaitFor(1, std::chrono::milliseconds(500)));  // a healthy silent peer stays
  ::kill(child.pid(), SIGSTOP);
  EXPECT(lost.WaitFor(1));
  router->Close();
}

// inproc peers are named and answered like others.
TEST(InprocWorksWithoutNotices) {
  ASSERT_OK(UseZmq());
  Counter back;
  Handler echo([](Socket& s, std::string_view peer, Frames& frames) {
    EXPECT_EQ(peer, "dealer");
    EXPECT_OK(s.Send(peer, std::span<Frame>(frames)));
  });
  Handler collect([&](Socket&, std::string_view, Frames&) { back.Add(); });
  Pair pair;
  ASSERT_OK(pair.Start(&echo, &collect, {}, {}, "inproc://pw-test"));
  for (int i = 0; i < 1000; ++i) EXPECT_OK(pair.dealer->Send("", Frame("x")));
  EXPECT(back.WaitFor(1000));
}

// A peer that comes back under its name takes the name over, and only its own end is reported as its end.
TEST(ReturningPeerIsKnownAgain) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  Counter messages, lost;
  Handler handler([&](Socket&, std::string_view, Frames&) { messages.Add(); },
                  [&](Socket&, const PeerEvent& event) {
                    if (event.kind == PeerEventKind::kDisconnected && event.identity == "same") lost.Add();
                  });
  ASSERT_OK_AND_ASSIGN(auto router, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "router"}));
  ASSERT_OK(reactor->Add(router, &handler));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(directory.Ipc("r")));
  for (uint64_t round = 1; round <= 20; ++round) {
    ASSERT_OK_AND_ASSIGN(auto dealer, Socket::Open({.kind = SocketKind::kDealer, .identity = "same"}));
    ASSERT_OK(dealer->Connect(bound));
    ASSERT_OK(dealer->Send("", Frame("hi")));
    ASSERT(messages.WaitFor(round));
    dealer->Close();
    ASSERT(lost.WaitFor(round));
  }
  EXPECT_EQ(lost.value(), 20);
  router->Close();
}

// Peers that leave before anybody reads their first message, while their descriptors are used again by the next: each
// is told to be lost, once, after its message; those that stay are not.
TEST(PeersThatCameAndWentAreTold) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  std::mutex mutex;
  std::map<std::string, int> heard, lost;
  Counter messages, losses;
  Handler handler(
      [&](Socket&, std::string_view peer, Frames&) {
        std::lock_guard lock(mutex);
        EXPECT_EQ(lost.count(std::string(peer)), 0);
        ++heard[std::string(peer)];
        messages.Add();
      },
      [&](Socket&, const PeerEvent& event) {
        if (event.kind != PeerEventKind::kDisconnected || event.identity.empty()) return;
        std::lock_guard lock(mutex);
        EXPECT_EQ(heard[event.identity], 1);
        ++lost[event.identity];
        losses.Add();
      });
  ASSERT_OK_AND_ASSIGN(auto router, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(directory.Ipc("r")));
  ASSERT_OK_AND_ASSIGN(auto first, OpenKind(SocketKind::kDealer, "stays first"));
  ASSERT_OK(first->Connect(bound));
  ASSERT_OK(first->Send("", Frame("hi")));
  constexpr int kVisitors = 10;
  for (int i = 0; i < kVisitors; ++i) {
    // A child, because its end is the only sure sign that its message has left it.
    Child child("visitor", bound + "#visitor " + std::to_string(i));
    EXPECT_EQ(child.Wait(), 0);
  }
  ASSERT_OK_AND_ASSIGN(auto last, OpenKind(SocketKind::kDealer, "stays last"));
  ASSERT_OK(last->Connect(bound));
  ASSERT_OK(last->Send("", Frame("hi")));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "router"}));
  ASSERT_OK(reactor->Add(router, &handler));
  EXPECT(messages.WaitFor(kVisitors + 2));
  EXPECT(losses.WaitFor(kVisitors));
  first->Close();
  EXPECT(losses.WaitFor(kVisitors + 1));
  last->Close();
  EXPECT(losses.WaitFor(kVisitors + 2));
  std::lock_guard lock(mutex);
  EXPECT_EQ(lost.size(), kVisitors + 2);
  for (const auto& [peer, times] : lost) EXPECT_EQ(times, 1);
  router->Close();
}

// Says one thing to "endpoint#identity" and leaves when it has been written.
int VisitorRole(const std::string& argument) {
  const size_t hash = argument.find('#');
  if (!UseZmq().ok()) return 2;
  auto socket = Socket::Open(
      {.kind = SocketKind::kDealer, .identity = argument.substr(hash + 1), .linger = std::chrono::seconds(10)});
  if (!socket.ok() || !(*socket)->Connect(argument.substr(0, hash)).ok()) return 3;
  if (!(*socket)->Send("", Frame("hi")).ok()) return 4;
  (*socket)->Close();
  auto context = ZmqContext();
  return context.ok() && Zmq().context_term(*context) == 0 ? 0 : 5;  // waits for the linger
}
const RoleRegistration visitor_role("visitor", &VisitorRole);

TEST(ConnectAsReachesASilentPeer) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  Counter at_a, at_b;
  Handler handler_a([&](Socket&, std::string_view peer, Frames& frames) {
    EXPECT_EQ(peer, "to/b");
    EXPECT_EQ(frames[0].bytes(), "answer");
    at_a.Add();
  });
  Handler handler_b([&](Socket& s, std::string_view peer, Frames&) {
    EXPECT_EQ(peer, "a");
    at_b.Add();
    EXPECT_OK(s.Send(peer, Frame("answer")));
  });
  ASSERT_OK_AND_ASSIGN(auto a, OpenKind(SocketKind::kRouter, "a"));
  ASSERT_OK_AND_ASSIGN(auto b, OpenKind(SocketKind::kRouter, "b"));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "both"}));
  ASSERT_OK(reactor->Add(a, &handler_a));
  ASSERT_OK(reactor->Add(b, &handler_b));
  ASSERT_OK_AND_ASSIGN(std::string bound, b->Bind(directory.Ipc("b")));
  ASSERT_OK(a->ConnectAs(bound, "to/b"));
  EXPECT_OK(a->Send("to/b", Frame("question")));
  EXPECT(at_b.WaitFor(1));
  EXPECT(at_a.WaitFor(1));
  a->Close();
  b->Close();
  ASSERT_OK_AND_ASSIGN(auto dealer, OpenKind(SocketKind::kDealer));
  EXPECT_EQ(dealer->ConnectAs(bound, "x").code(), Code::kInvalidArgument);
}

TEST(ASocketHasADifferentNameAtEachEnd) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  Counter heard, called_back;
  std::set<std::string> names;
  Handler listens([&](Socket&, std::string_view peer, Frames&) {
    names.emplace(peer);
    heard.Add();
  });
  Handler asks([](Socket&, std::string_view, Frames&) {});
  // Whom the socket's listener is told to be: by none of the names that it has as a caller.
  Handler calls_back([&](Socket&, std::string_view peer, Frames&) {
    EXPECT_EQ(peer, "-");
    called_back.Add();
  });
  ASSERT_OK_AND_ASSIGN(auto asker, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(auto first, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(auto second, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(auto back, OpenKind(SocketKind::kRouter, "back"));
  ASSERT_OK_AND_ASSIGN(auto reactor, Reactor::Start({.name = "all"}));
  ASSERT_OK(reactor->Add(asker, &asks));
  ASSERT_OK(reactor->Add(first, &listens));
  ASSERT_OK(reactor->Add(second, &listens));
  ASSERT_OK(reactor->Add(back, &calls_back));
  ASSERT_OK_AND_ASSIGN(const std::string at_first, first->Bind(directory.Ipc("1")));
  ASSERT_OK_AND_ASSIGN(const std::string at_second, second->Bind(directory.Ipc("2")));
  ASSERT_OK(asker->ConnectAs(at_first, "to/1", "me at 1"));
  ASSERT_OK(asker->ConnectAs(at_second, "to/2", "me at 2"));
  EXPECT_OK(asker->Send("to/1", Frame("x")));
  EXPECT_OK(asker->Send("to/2", Frame("x")));
  EXPECT(heard.WaitFor(2));
  EXPECT(names == (std::set<std::string>{"me at 1", "me at 2"}));
  ASSERT_OK_AND_ASSIGN(const std::string at_asker, asker->Bind(directory.Ipc("3")));
  ASSERT_OK(back->Connect(at_asker));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!asker->Send("back", Frame("x")).ok() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();  // until it has called
  }
  EXPECT(called_back.WaitFor(1));
  for (const auto& socket : {asker, first, second, back}) socket->Close();
}

TEST(FramesKeepTheirBytes) {
  ASSERT_OK(UseZmq());
  Counter back, released;
  Handler echo([](Socket& s, std::string_view peer, Frames& frames) {
    EXPECT_OK(s.Send(peer, std::span<Frame>(frames)));  // received frames go out again as they are
  });
  const std::string big(100000, 'b'), borrowed(200000, 'z');
  Handler collect([&](Socket&, std::string_view, Frames& frames) {
    EXPECT_EQ(frames.size(), 10);
    if (frames.size() == 10) {
      EXPECT_EQ(frames[0].size(), 0);
      EXPECT_EQ(frames[1].bytes(), "short");
      EXPECT(frames[2].bytes() == big);
      EXPECT(frames[3].bytes() == borrowed);
      EXPECT_EQ(frames[9].bytes(), "9");
      Frame kept = std::move(frames[1]);
      frames.clear();
      EXPECT_EQ(kept.bytes(), "short");
    }
    back.Add();
  });
  Pair pair;
  ASSERT_OK(pair.Start(&echo, &collect));
  Frames frames;
  frames.emplace_back();
  frames.emplace_back("short");
  frames.emplace_back(big);
  frames.push_back(Frame::Borrow(borrowed.data(), borrowed.size(), [&] { released.Add(); }));
  for (int i = 4; i < 10; ++i) frames.emplace_back(std::to_string(i));
  EXPECT_OK(pair.dealer->Send("", std::move(frames)));
  EXPECT(back.WaitFor(1));
  EXPECT(released.WaitFor(1));
  // Whatever becomes of a borrowed frame, it is released once.
  {
    Frame dropped = Frame::Borrow(borrowed.data(), 1, [&] { released.Add(); });
  }
  EXPECT_EQ(pair.router->Send("nobody", Frame::Borrow(borrowed.data(), 1, [&] { released.Add(); })).code(),
            Code::kNotFound);
  EXPECT_EQ(released.value(), 3);
}

TEST(EndpointsAreReportedAndRemoved) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(auto socket, OpenKind(SocketKind::kRouter));
  ASSERT_OK_AND_ASSIGN(std::string tcp, socket->Bind("tcp://127.0.0.1:*"));
  EXPECT(tcp.starts_with("tcp://127.0.0.1:") && !tcp.ends_with("*") && tcp.size() > 16);
  ASSERT_OK_AND_ASSIGN(std::string ipc, socket->Bind(directory.Ipc("e")));
  EXPECT_EQ(ipc, directory.Ipc("e"));
  struct stat status;
  EXPECT_EQ(::stat((directory.path() + "/e").c_str(), &status), 0);
  EXPECT_EQ(socket->Bind(tcp).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(socket->Bind(directory.Ipc(std::string(200, 'p'))).status().code(), Code::kInvalidArgument);
  socket->Close();
  EXPECT(::stat((directory.path() + "/e").c_str(), &status) != 0);
  EXPECT_EQ(Socket::Open({.identity = std::string(256, 'i')}).status().code(), Code::kInvalidArgument);
}

TEST(SecondLibraryIsRefused) {
  ASSERT_OK(UseZmq());
  EXPECT_OK(UseZmq());
  const Status status = LoadZmq("/nowhere/libzmq.so");
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_HAS(status.ToString(), "/nowhere/libzmq.so");
}

int LoadRole(const std::string& path) {
  const Status status = LoadZmq(path);
  return status.code() == Code::kNotFound && !ZmqLoaded() && !ZmqContext().ok() ? 0 : 1;
}
const RoleRegistration load_role("load", &LoadRole);

TEST(MissingLibraryIsExplained) {
  Child child("load", "/nowhere/libzmq.so");
  EXPECT_EQ(child.Wait(), 0);
}

}  // namespace
}  // namespace pathways::transport::testing
