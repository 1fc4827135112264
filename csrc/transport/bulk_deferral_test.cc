// Bulk transfers that nobody expects yet: they stop without closing the window, and go on when somebody does.
#include <set>

#include "csrc/transport/bulk_test_support.h"

namespace pathways::transport::testing {
namespace {

// Defers transfers until they are expected, as a worker does (worker/incoming.cc).
class DeferringLoop : public Loop {
 public:
  using Loop::Loop;
  void OnBulk(std::string_view peer, const BulkPiece& piece, std::span<const std::byte> bytes,
              BulkLease lease) override {
    if (unexpected.contains(piece.key)) {
      deferred.insert(piece.key);
      return lease.Defer();
    }
    // Sent before its sender knew.
    if (deferred.contains(piece.key) && piece.offset != received[piece.key].size()) return lease.Defer();
    Loop::OnBulk(peer, piece, bytes, std::move(lease));
  }
  bool Expect(uint64_t key, const Status& status = OkStatus()) {
    unexpected.erase(key);
    return sender->OnResume("peer", key, status);
  }

  std::set<uint64_t> unexpected, deferred;
};

TEST(ADeferredTransferLeavesTheWindowToOthers) {
  for (const bool same_machine : {true, false}) {
    DeferringLoop loop(Small("deferral"));
    const std::string source = RandomBytes(10 * 4096 + 7, 1);
    std::vector<Outcome> outcomes(9);
    for (uint64_t key = 0; key < 8; ++key) loop.unexpected.insert(key);
    for (uint64_t key = 0; key < 9; ++key) {
      loop.sender->Send("peer", same_machine, key, {source.data(), source.size()}, outcomes[key].Done());
    }
    loop.RunToEnd();
    EXPECT(loop.received[8] == source);  // nobody waits for the others
    EXPECT_EQ(outcomes[8].calls, 1);
    EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
    EXPECT_EQ(loop.sender->transfers(), 8);
    for (uint64_t key = 0; key < 8; ++key) {
      EXPECT(!loop.Expect(key));
      loop.RunToEnd();
      EXPECT(loop.received[key] == source);
      EXPECT_EQ(outcomes[key].calls, 1);
      EXPECT_OK(outcomes[key].status);
    }
    EXPECT_EQ(loop.sender->transfers(), 0);
    EXPECT(!loop.Expect(3));  // over
  }
}

// Pieces, answers and resumptions meet in every order.
TEST(EveryByteComesOnceAndInOrderWhereverAResumptionMeetsThePieces) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::minstd_rand random(seed + 1);
    DeferringLoop loop(Small("orders"));
    constexpr uint64_t kTransfers = 4;
    std::vector<Outcome> outcomes(kTransfers);
    std::vector<std::string> sources;
    for (uint64_t key = 0; key < kTransfers; ++key) {
      sources.push_back(RandomBytes(1 + random() % 40000, seed + static_cast<unsigned>(key)));
      if (sources[key].size() > 512 && random() % 4 != 0) loop.unexpected.insert(key);
    }
    for (uint64_t key = 0; key < kTransfers; ++key) {
      loop.sender->Send("peer", random() % 2 != 0, key, {sources[key].data(), sources[key].size()},
                        outcomes[key].Done());
    }
    std::deque<uint64_t> resumptions;  // on their way, behind the answers that were given before
    while (loop.complete < static_cast<int>(kTransfers)) {
      switch (random() % 4) {
        case 0:
          loop.Pump();
          break;
        case 1:
          if (!loop.pieces.empty()) loop.DeliverPiece();
          break;
        case 2:
          if (!loop.releases.empty()) {
            loop.DeliverRelease();
            EXPECT_OK(loop.last_status);
          } else if (!resumptions.empty()) {
            EXPECT(!loop.sender->OnResume("peer", resumptions.front(), OkStatus()));
            resumptions.pop_front();
          }
          break;
        default:
          if (!loop.unexpected.empty()) {
            const uint64_t key = *loop.unexpected.begin();
            loop.unexpected.erase(key);
            if (loop.deferred.contains(key)) resumptions.push_back(key);
          }
      }
    }
    loop.RunToEnd();
    for (uint64_t key = 0; key < kTransfers; ++key) {
      EXPECT(loop.received[key] == sources[key]);
      EXPECT_EQ(outcomes[key].calls, 1);
      EXPECT_OK(outcomes[key].status);
    }
    EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
    EXPECT_EQ(loop.sender->transfers(), 0);
  }
}

TEST(ADeferredTransferThatNobodyWantsEnds) {
  DeferringLoop loop(Small("unwanted"));
  const std::string source = RandomBytes(20000, 1);
  Outcome outcome, lost;
  loop.unexpected = {1, 2};
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, outcome.Done());
  loop.sender->Send("peer", true, 2, {source.data(), source.size()}, lost.Done());
  loop.RunToEnd();
  EXPECT(loop.Expect(1, Cancelled("its client is gone")));
  EXPECT_EQ(outcome.status.code(), Code::kCancelled);
  EXPECT_EQ(outcome.calls, 1);
  loop.sender->PeerLost("peer", Unavailable("killed"));
  EXPECT_EQ(lost.status.code(), Code::kUnavailable);
  EXPECT_EQ(lost.calls, 1);
  EXPECT_EQ(loop.sender->transfers(), 0);
}

TEST(WhatTravelsInOneFrameIsOverOnceItIsSent) {
  DeferringLoop loop(Small("small-deferral"));
  const std::string source = RandomBytes(100, 1);
  Outcome outcome;
  loop.unexpected = {1};
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, outcome.Done());
  EXPECT_EQ(outcome.calls, 1);
  loop.RunToEnd();  // a receiver that defers it nevertheless
  EXPECT(!loop.Expect(1));
  EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
}

}  // namespace
}  // namespace pathways::transport::testing
