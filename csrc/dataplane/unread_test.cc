// Peers that do not read what they are sent: what is kept for each has limits, nobody else is concerned, and who reads
// later has lost nothing.
#include "csrc/dataplane/unread.h"

#include <future>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/dataplane/test_support.h"

namespace pathways::dataplane {
namespace {

constexpr uint64_t KeyOfClient(uint64_t client, uint64_t n) { return client << wire::kClientShift | n; }

class Witness : public testing::NotingSink {
 public:
  void OnBytes(std::string_view peer, uint64_t key, uint64_t, uint64_t, std::span<const std::byte>,
               transport::BulkLease) override {
    Note([&] { taken[std::string(peer)].push_back(key); });
  }
  void OnTransferFailed(std::string_view, uint64_t, const Status&) override {}
  void OnSendFailed(const std::string&, uint64_t key, const Status& status) override {
    Note([&] { send_failed[key] = status; });
  }
  void OnPeer(std::string_view peer, uint64_t) override {
    Note([&] { called.insert(std::string(peer)); });
  }

  std::map<uint64_t, Status> send_failed;
  std::map<std::string, std::vector<uint64_t>> taken;  // keys, by peer
  std::set<std::string> called;
};

struct End {
  End(const std::string& identity, bool binds, PeerLimits limits = {},
      std::chrono::milliseconds timeout = DataPlaneOptions().transfer_timeout) {
    DataPlaneOptions options = testing::OptionsOf(identity, {testing::kCluster, identity, "", 0}, binds);
    options.limits = limits;
    options.transfer_timeout = timeout;
    data = *DataPlane::Start(options, &sink);
  }
  ~End() { data->Stop(); }
  std::future<Status> Send(const std::string& peer, uint64_t key, const std::string& bytes) {
    auto done = std::make_shared<std::promise<Status>>();
    data->Send(peer, key, {bytes.data(), bytes.size()}, [done](const Status& status) { done->set_value(status); });
    return done->get_future();
  }
  Witness sink;
  std::unique_ptr<DataPlane> data;
};

Status Outcome(std::future<Status> outcome) {
  if (outcome.wait_for(testing::NotingSink::kPatience) != std::future_status::ready) return DeadlineExceeded("no end");
  return outcome.get();
}

// A client's socket that says what it is told to, and reads when it is told to.
class Caller {
 public:
  Caller(const std::string& endpoint, const std::string& identity) {
    transport::SocketOptions options;
    options.kind = transport::SocketKind::kDealer;
    options.identity = identity;
    options.receive_hwm = 1;
    options.curve.insecure = true;
    socket_ = *transport::Socket::Open(options);
    EXPECT_OK(socket_->Connect(endpoint));
  }
  ~Caller() { socket_->Close(); }
  void Hello(const Link::Statement& link) {
    const uint8_t again = link.anew ? 1 : 0;
    const wire::PeerHello hello{testing::kCluster, "", link.number, link.other, link.received, link.sent, again};
    EXPECT_OK(socket_->Send({}, transport::Frame(wire::Encode(hello))));
  }
  void Seen(uint64_t link, uint64_t received) {
    EXPECT_OK(socket_->Send({}, transport::Frame(wire::Encode(wire::PeerSeen{link, received, 0}))));
  }
  void Data(uint64_t key, uint64_t sequence) {
    EXPECT_OK(socket_->Send({}, testing::DataMessage(key, sequence, "abcd")));
  }
  // The head frame of the next message; empty: nothing came.
  std::string Next() {
    const auto deadline = std::chrono::steady_clock::now() + testing::NotingSink::kPatience;
    std::vector<transport::Socket::Message> messages(1);
    while (std::chrono::steady_clock::now() < deadline) {
      if (socket_->ReceiveBatch(messages) > 0) return std::string(messages[0].frames.at(0).bytes());
      std::this_thread::yield();
    }
    return "";
  }

 private:
  std::shared_ptr<transport::Socket> socket_;
};

TEST(BytesCountUntilNobodyHoldsThem) {
  Unread unread;
  transport::Frame first(std::string(1500, 'x')), second(std::string(1500, 'y')), small(std::string(100, 'z'));
  for (transport::Frame* frame : {&first, &second, &small}) unread.Count(*frame);
  EXPECT_EQ(unread.bytes(), 3000u);
  EXPECT_EQ(std::string(second.bytes()), std::string(1500, 'y'));
  transport::Frame shared = first.Share();
  first = transport::Frame();
  EXPECT_EQ(unread.bytes(), 3000u);  // libzmq may still hold the other share
  shared = transport::Frame();
  EXPECT_EQ(unread.bytes(), 1500u);
}

TEST(WhatIsAskedForTooOftenIsAnsweredAtTheNextTick) {
  Answers answers;
  for (int n = 0; n < Answers::kWords; ++n) EXPECT(answers.Word(true, true));
  for (int n = 0; n < Answers::kAgain; ++n) EXPECT(answers.Again());
  const Answers::Owed nothing = answers.Take();
  EXPECT(!nothing.word && !nothing.hello && !nothing.lost && !nothing.again);
  for (int n = 0; n < Answers::kWords; ++n) EXPECT(answers.Word(false, false));
  EXPECT(!answers.Word(false, true));
  EXPECT(!answers.Word(false, false));
  for (int n = 0; n <= Answers::kAgain; ++n) (void)answers.Again();
  const Answers::Owed owed = answers.Take();
  EXPECT(owed.word && !owed.hello && owed.lost && owed.again);
  EXPECT(answers.Word(false, false));
}

// Of one that reads no answers the host takes so many messages and no more; others go on. When it reads, all arrives.
TEST(WhoReadsNoAnswersIsNotHeardUntilItDoesAndLosesNothing) {
  constexpr uint64_t kLimit = 200, kSent = 600, kLink = 5;
  PeerLimits limits;
  limits.messages = kLimit;
  End host("w/h", true, limits), other("c/1", false);
  EXPECT_OK(other.data->ConnectTo("h", host.data->endpoint(), ""));
  Caller mute(host.data->endpoint(), "c/7");
  mute.Hello({.number = kLink});
  const std::string large(9 << 20, 'x'), small(5000, 'y');
  std::vector<std::future<Status>> others;
  for (uint64_t n = 1; n <= kSent; ++n) {
    mute.Data(KeyOfClient(7, n), n);
    if (n % 10 == 0) others.push_back(other.Send("to/h", KeyOfClient(1, n), small));
  }
  ASSERT(host.sink.Wait([&] { return host.sink.taken["c/7"].size() == kLimit; }));
  others.push_back(other.Send("to/h", KeyOfClient(1, 1000), large));
  for (auto& outcome : others) EXPECT_OK(Outcome(std::move(outcome)));
  EXPECT_OK(Outcome(host.Send("c/1", KeyOfClient(1, 1001), large)));
  host.sink.Note([&] { EXPECT_EQ(host.sink.taken["c/7"].size(), kLimit); });
  uint64_t of_host = 0;
  for (uint64_t released = 0; released < kSent;) {
    const std::string message = mute.Next();
    ASSERT(!message.empty());
    ASSERT_OK_AND_ASSIGN(const wire::Head head, wire::DecodeHead(message));
    if (head.header.type == wire::Type::kPeerHello) of_host = wire::Decode<wire::PeerHello>(head.body)->number;
    if (head.header.type == wire::Type::kPeerSeen) {
      ASSERT_OK_AND_ASSIGN(const wire::PeerSeen seen, wire::Decode<wire::PeerSeen>(head.body));
      for (uint64_t n = seen.received + 1; seen.lost != 0 && n <= kSent; ++n) mute.Data(KeyOfClient(7, n), n);
    }
    if (head.header.type != wire::Type::kRelease || head.header.sequence != released + 1) continue;
    ++released;
    if (released % 10 == 0) mute.Seen(of_host, released);
    // As at a tick: it comes behind all that was sent, so the host sees what it lacks.
    if (released % kLimit == 0) {
      mute.Hello({.number = kLink, .other = of_host, .received = released, .sent = kSent});
    }
  }
  const auto all = [&] { return host.sink.taken["c/7"].size() == kSent; };
  EXPECT(host.sink.Wait(all));
  for (uint64_t n = 1; n <= kSent; ++n) EXPECT_EQ(host.sink.taken["c/7"][n - 1], KeyOfClient(7, n));
}

// Transfers to one that is silent fail by their time, and libzmq would keep their bytes for as long as it is connected.
TEST(WhatLibzmqHoldsForOneThatDoesNotReadIsLetGo) {
  constexpr uint64_t kWindow = uint64_t{128} << 20;           // 32 pieces
  const std::string large(20 << 20, 'x'), own(9 << 20, 'y');  // libzmq reads them until the ends have stopped
  PeerLimits limits;
  limits.client_bytes = uint64_t{160} << 20;
  End host("w/h", true, limits, std::chrono::milliseconds(600)), other("c/1", false);
  EXPECT_OK(other.data->ConnectTo("h", host.data->endpoint(), ""));
  Caller mute(host.data->endpoint(), "c/7");
  mute.Hello({.number = 5});
  ASSERT(host.sink.Wait([&] { return host.sink.called.contains("c/7"); }));
  for (uint64_t round = 0, key = 1; round < 5; ++round) {
    for (int n = 0; n < 10; ++n) (void)host.Send("c/7", KeyOfClient(7, key++), large);
    ASSERT(host.sink.Wait([&] { return host.sink.send_failed.size() == key - 1; }));
    EXPECT(host.data->unread_bytes("c/7") <= limits.client_bytes + kWindow);
  }
  EXPECT_EQ(host.data->transfers(TransferState::kOpen), 0u);
  EXPECT_OK(Outcome(other.Send("to/h", KeyOfClient(1, 1000), own)));
}

TEST(HellosAreAnsweredSoOftenInATick) {
  End host("w/h", true);
  Caller caller(host.data->endpoint(), "c/7");
  for (int n = 0; n < 2000; ++n) caller.Hello({.number = 5, .anew = true});
  caller.Data(KeyOfClient(7, 1), 1);
  int answers = 0;
  for (;;) {
    const std::string message = caller.Next();
    ASSERT(!message.empty());
    if (wire::DecodeHead(message)->header.type == wire::Type::kRelease) break;
    ++answers;
  }
  EXPECT(answers >= 2);  // its hello and how far it is
  EXPECT(answers < 200);
}

TEST(FailuresBeyondThoseThatWaitAreToldByAnotherWay) {
  PeerLimits limits;
  limits.failures = 3;
  End host("w/h", true, limits);
  for (uint64_t n = 1; n <= 4; ++n) host.data->SendFailure("c/7", KeyOfClient(7, n), Internal("no value"));
  host.sink.Note([&] {
    EXPECT_EQ(host.sink.send_failed.size(), 1u);
    EXPECT_HAS(host.sink.send_failed[KeyOfClient(7, 4)].message(), "no value");
  });
}

TEST(TransfersThatWaitForOneClientHaveALimit) {
  PeerLimits limits;
  limits.transfers = 3;
  End host("w/h", true, limits);
  const std::string bytes(100, 'x');
  for (uint64_t key = 1; key <= 3; ++key) (void)host.Send("c/7", key, bytes);
  EXPECT_HAS(Outcome(host.Send("c/7", 4, bytes)).message(), "at most 3 transfers from this host to a client");
  EXPECT(host.sink.Wait([&] { return host.sink.send_failed.contains(4); }));
  End other("c/1", false);
  EXPECT_OK(other.data->ConnectTo("h", host.data->endpoint(), ""));
  EXPECT_OK(Outcome(host.Send("c/1", 5, bytes)));
}

TEST(AClientTakesPartInNoCollectives) {
  End host("w/h", true), client("c/1", false), member("w/g", false);
  std::set<std::string> heard;  // the data thread's
  host.data->HandleMessages([&](std::string_view peer, const wire::Head&, transport::Frames&) {
    heard.insert(std::string(peer));
    return OkStatus();
  });
  const std::string bytes(100, 'x');
  for (End* end : {&client, &member}) {
    EXPECT_OK(end->data->ConnectTo("h", host.data->endpoint(), ""));
    transport::Frames frames;
    frames.emplace_back(wire::Encode(wire::CollectiveTaken{}));
    EXPECT_OK(end->data->SendMessage("to/h", std::move(frames)));
    (void)end->Send("to/h", KeyOfClient(1, 1), bytes);
  }
  // They came, hence what was sent before them did.
  ASSERT(host.sink.Wait([&] { return host.sink.taken.contains("c/1") && host.sink.taken.contains("w/g"); }));
  std::promise<std::set<std::string>> found;
  host.data->Post([&] { found.set_value(heard); });
  EXPECT(found.get_future().get() == std::set<std::string>{"w/g"});
}

}  // namespace
}  // namespace pathways::dataplane
