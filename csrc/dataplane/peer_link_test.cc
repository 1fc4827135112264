// What is kept for one peer and said to it, over a socket that nobody is connected to.
#include "csrc/dataplane/peer_link.h"

#include "csrc/dataplane/test_support.h"

namespace pathways::dataplane {
namespace {

constexpr uint64_t kNumber = 9;

struct Pair {
  Pair() { link.route = "c/7"; }
  void Transmit(uint64_t key, size_t bytes) {
    EXPECT_OK(link.Transmit({0, key, testing::DataMessage(key, 0, std::string(bytes, 'x'))}));
  }
  OwnEnd own{testing::OpenRouter(), "machine", testing::kCluster};
  PeerLink link{own, kNumber};
  Link::Dropped dropped;
};

TEST(MessagesAreKeptUntilThePeerHasSeenThem) {
  Pair pair;
  for (uint64_t key = 1; key <= 3; ++key) pair.Transmit(key, 2000);  // nobody is there: that is no error
  EXPECT_OK(pair.link.OnSeen({kNumber + 1, 3, 0}, &pair.dropped));   // of another link
  EXPECT_EQ(pair.link.kept(), 3u);
  EXPECT_OK(pair.link.OnSeen({kNumber, 2, 0}, &pair.dropped));
  EXPECT_EQ(pair.link.kept(), 1u);
  EXPECT_EQ(pair.link.unread_bytes(), 6000u);
  pair.dropped.clear();
  EXPECT_EQ(pair.link.unread_bytes(), 2000u);
  EXPECT_EQ(pair.link.OnSeen({kNumber, 4, 0}, &pair.dropped).code(), Code::kInvalidArgument);
}

TEST(APeerThatStartedAgainHasForgottenWhatItSaw) {
  Pair pair;
  EXPECT(!pair.link.OnHello({testing::kCluster, "", 5, 0, 0, 0, 0}, 10, &pair.dropped));
  pair.Transmit(1, 4);
  EXPECT_OK(pair.link.OnSeen({kNumber, 1, 0}, &pair.dropped));
  pair.Transmit(2, 4);
  EXPECT(pair.link.OnHello({testing::kCluster, "", 6, 0, 0, 0, 0}, 10, &pair.dropped));
  EXPECT_EQ(pair.link.kept(), 0u);
  EXPECT_EQ(pair.link.theirs(), 6u);
}

TEST(WhatIsReplacedHoldsNoBytes) {
  Pair pair;
  for (const uint64_t key : {1, 2, 1}) pair.Transmit(key, 2000);
  pair.link.Replace(1, wire::Encode(wire::Data{}), &pair.dropped);
  pair.dropped.clear();
  EXPECT_EQ(pair.link.kept(), 3u);
  EXPECT_EQ(pair.link.unread_bytes(), 2000u);
}

TEST(OnlyAPeerOfWhichSomethingIsExpectedIsMissed) {
  Pair pair;
  EXPECT(pair.link.Tick(false));
  EXPECT(!pair.link.Tick(true));
  pair.link.Doubt();
  EXPECT(!pair.link.Tick(false));
  for (int n = 0; n < 10; ++n) (void)pair.link.Tick(false);
  EXPECT(pair.link.Tick(false));
  pair.Transmit(1, 4);
  EXPECT(!pair.link.Tick(false));
}

TEST(APeerThatTakesNothingIsToldThatItIsNotHeardOnce) {
  using Verdict = PeerLink::Verdict;
  Pair pair;
  EXPECT(pair.link.Take(1, 2) == Verdict::kStranger);
  (void)pair.link.OnHello({testing::kCluster, "", 5, 0, 0, 0, 0}, 10, &pair.dropped);
  EXPECT(pair.link.Take(1, 2) == Verdict::kNew);
  for (uint64_t key = 1; key <= 2; ++key) pair.Transmit(key, 4);
  EXPECT(pair.link.Take(2, 2) == Verdict::kFull);
  EXPECT(pair.link.Take(2, 2) == Verdict::kNotNow);
  EXPECT_OK(pair.link.OnSeen({kNumber, 1, 0}, &pair.dropped));
  EXPECT(pair.link.Take(2, 2) == Verdict::kNew);
}

}  // namespace
}  // namespace pathways::dataplane
