// Transfers over links whose peers are made up, with a clock of the test's own: no connection, no thread, no wait.
#include "csrc/dataplane/transfers.h"

#include <map>
#include <string>
#include <vector>

#include "csrc/dataplane/test_support.h"

namespace pathways::dataplane {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSilence{4000};
constexpr milliseconds kBetweenTicks{500};

class Told : public DataSink {
 public:
  void OnBytes(std::string_view, uint64_t key, uint64_t, uint64_t, std::span<const std::byte> bytes,
               transport::BulkLease) override {
    received[key].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void OnTransferFailed(std::string_view, uint64_t key, const Status& status) override { failed[key] = status; }
  void OnSendFailed(const std::string&, uint64_t key, const Status& status) override { send_failed[key] = status; }

  std::map<uint64_t, std::string> received;
  std::map<uint64_t, Status> failed, send_failed;
};

struct Moved {
  Moved()
      : links({"machine", "", {}, [](const std::string&) {}}, testing::OpenRouter()),
        transfers({kSilence, {}, nullptr, [] {}}, links, &sink) {
    links.Join({testing::kCluster, "w/h", "", 0});
    transfers.Join(testing::kCluster, 0);
  }
  ~Moved() {
    links.Stop();
    links.Clear();
    transfers.Stop();
  }
  void Send(const std::string& peer, uint64_t key) {
    transfers.Send(peer, key, {bytes.data(), bytes.size()}, [this, key](const Status& status) { done[key] = status; });
  }
  void Hello(const std::string& route, uint64_t number) {
    const auto greeting = links.OnHello(route, {testing::kCluster, "", number, 0, 0, 0, 0}, transport::Frame());
    ASSERT(greeting.ok() && greeting->has_value());
    transfers.OnHello(**greeting);
  }
  // As if it came from `peer` on its connection.
  Status Data(const std::string& peer, uint64_t key, const std::string& text) {
    transport::Frames frames = testing::DataMessage(key, 1, text);
    const auto head = wire::DecodeHead(frames[0].bytes());
    return transfers.OnData({peer, 0}, *head, frames);
  }
  size_t kept(const std::string& peer) {
    std::lock_guard lock(links.mutex);
    const PeerLink* const link = links.Find(peer);
    return link == nullptr ? 0 : link->kept();
  }
  // Lets the time go by, with the ticks in it.
  void Pass(milliseconds time) {
    for (milliseconds gone{0}; gone < time; gone += kBetweenTicks) transfers.OnTick(now += kBetweenTicks);
  }

  const std::string bytes = std::string(100, 'x');
  std::map<uint64_t, Status> done;
  Told sink;
  PeerLinks links;
  Transfers transfers;
  Transfers::Time now = std::chrono::steady_clock::now();
};

TEST(WhatWaitsForAPeerGoesWithItsHello) {
  Moved end;
  end.Send("c/7", 1);
  end.transfers.SendFailure("c/7", 2, Internal("no value"));
  EXPECT_EQ(end.kept("c/7"), 0u);
  EXPECT(end.transfers.open() == (std::vector<std::pair<std::string, uint64_t>>{{"c/7", 1}}));
  end.Hello("c/7", 5);
  EXPECT_EQ(end.kept("c/7"), 2u);
  EXPECT_OK(end.done[1]);
  EXPECT_EQ(end.transfers.count(TransferState::kOpen), 1u);  // the peer has not answered
  EXPECT_OK(end.transfers.OnRelease("c/7", {1, 1, OkStatus(), 0}));
  EXPECT_EQ(end.transfers.count(TransferState::kDone), 1u);
}

TEST(TransfersEndWithTheirPeerOrWhenAllStops) {
  Moved end;
  end.Hello("c/7", 5);
  end.Send("c/7", 1);
  end.Send("c/8", 2);
  EXPECT(end.links.Lose("c/8", Unavailable("client 8 is gone"), 0));
  end.transfers.PeerLost("c/8", Unavailable("client 8 is gone"));
  EXPECT_HAS(end.done[2].message(), "client 8 is gone");
  end.Send("c/8", 3);
  EXPECT_HAS(end.done[3].message(), "client 8 is gone");
  EXPECT_EQ(end.transfers.count(TransferState::kFailed), 1u);
  EXPECT_EQ(end.transfers.count(TransferState::kOpen), 1u);
  end.Send("c/9", 4);
  end.links.Stop();
  end.links.Clear();
  end.transfers.Stop();
  EXPECT_EQ(end.done[4].code(), Code::kCancelled);
  end.Send("c/9", 5);
  EXPECT_EQ(end.done[5].code(), Code::kCancelled);
}

TEST(SilenceEndsTransfersAndTheNewsTakesThePlaceOfTheirBytes) {
  Moved end;
  end.Hello("c/7", 5);
  end.Send("c/7", 1);  // it goes
  end.Send("c/8", 2);  // it waits
  end.Pass(kSilence - kBetweenTicks);
  EXPECT(end.sink.send_failed.empty());
  end.Pass(2 * kBetweenTicks);
  for (const uint64_t key : {1, 2}) EXPECT_EQ(end.sink.send_failed[key].code(), Code::kDeadlineExceeded);
  EXPECT_OK(end.done[1]);  // so few bytes are copied
  EXPECT_EQ(end.done[2].code(), Code::kDeadlineExceeded);
  EXPECT_EQ(end.kept("c/7"), 2u);  // its piece, without bytes, and the news
  EXPECT_EQ(end.links.unread_bytes("c/7"), 0u);
  EXPECT_EQ(end.transfers.count(TransferState::kOpen), 0u);
}

// The clock goes on while a process is stopped, and peers had no chance to be heard.
TEST(AProcessThatWasStoppedItselfBlamesNobody) {
  Moved end;
  end.Hello("c/7", 5);
  end.Send("c/7", 1);
  end.Pass(kBetweenTicks);
  end.transfers.OnTick(end.now += 10 * kSilence);
  end.Pass(kSilence - kBetweenTicks);
  EXPECT(end.sink.send_failed.empty());
  end.Pass(kBetweenTicks);
  EXPECT(end.sink.send_failed.contains(1));
}

TEST(AClientSendsUnderItsOwnKeysOnly) {
  Moved end;
  end.Hello("c/7", 5);
  const uint64_t own = uint64_t{7} << wire::kClientShift | 1, anothers = uint64_t{8} << wire::kClientShift | 1;
  EXPECT_OK(end.Data("c/7", own, "abcd"));
  EXPECT_EQ(end.sink.received[own], std::string("abcd"));
  EXPECT_EQ(end.Data("c/7", anothers, "lies").code(), Code::kPermissionDenied);
  EXPECT(!end.sink.received.contains(anothers));
  EXPECT_EQ(end.kept("c/7"), 2u);  // both were answered
  EXPECT_OK(end.Data("w/a", anothers, "efgh"));
}

}  // namespace
}  // namespace pathways::dataplane
