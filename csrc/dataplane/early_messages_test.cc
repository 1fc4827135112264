#include "csrc/dataplane/early_messages.h"

#include "csrc/testing/test.h"

namespace pathways::dataplane {
namespace {

transport::Frames OneFrame(size_t bytes) {
  transport::Frames frames;
  frames.emplace_back(std::string(bytes, 'x'));
  return frames;
}

TEST(EarlyMessagesAreKeptInOrderUpToANumber) {
  EarlyMessages early;
  for (size_t n = 0; n < EarlyMessages::kMost; ++n) {
    transport::Frames frames = OneFrame(n % 10);
    EXPECT_OK(early.Keep(n % 2 == 0 ? "w/a" : "w/b", frames));
  }
  transport::Frames more = OneFrame(1);
  EXPECT_HAS(early.Keep("w/a", more).message(), "too many messages before this host joined");
  const auto kept = early.Take();
  ASSERT_EQ(kept.size(), EarlyMessages::kMost);
  for (size_t n = 0; n < kept.size(); ++n) {
    EXPECT_EQ(kept[n].first, std::string(n % 2 == 0 ? "w/a" : "w/b"));
    EXPECT_EQ(kept[n].second.at(0).size(), n % 10);
  }
  EXPECT(early.Take().empty());
}

TEST(EarlyMessagesAreKeptUpToASize) {
  EarlyMessages early;
  transport::Frames half = OneFrame(EarlyMessages::kMostBytes / 2), rest = OneFrame(EarlyMessages::kMostBytes / 2);
  transport::Frames more = OneFrame(1);
  transport::Frames all = OneFrame(EarlyMessages::kMostBytes);
  EXPECT_OK(early.Keep("w/a", half));
  EXPECT_EQ(early.Keep("w/a", all).code(), Code::kResourceExhausted);  // and leaves room for others
  EXPECT_OK(early.Keep("w/a", rest));
  EXPECT_EQ(early.Keep("w/a", more).code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace pathways::dataplane
