#include "csrc/dataplane/transfer_book.h"

#include "csrc/testing/test.h"

namespace pathways::dataplane {
namespace {

using std::chrono::milliseconds;
using Time = TransferBook::Time;

constexpr milliseconds kLimit{60'000};
Time At(int64_t ms) { return Time(milliseconds(ms)); }

TEST(EachTransferEndsOnce) {
  TransferBook book;
  for (uint64_t key = 1; key <= 4; ++key) book.Begin(key, 100, At(0));
  EXPECT_EQ(book.count(TransferState::kOpen), 4);
  EXPECT(book.End(1, TransferState::kDone));
  EXPECT(!book.End(1, TransferState::kFailed));
  EXPECT(book.End(2, TransferState::kCancelled));
  book.EndAll(TransferState::kFailed);
  EXPECT_EQ(book.count(TransferState::kDone), 1);
  EXPECT_EQ(book.count(TransferState::kCancelled), 1);
  EXPECT_EQ(book.count(TransferState::kFailed), 2);
  EXPECT(book.empty());
}

TEST(SilenceOfAPeerEndsWhatWaitsForItAndSaysHowFarItGot) {
  TransferBook book;
  book.Begin(5, 1000, At(0));
  book.Progress(5, 400);
  book.Begin(6, 10, At(69'000));
  EXPECT(book.TakeStalled("to/h1", At(10'000), kLimit, At(69'999)).empty());
  const auto stalled = book.TakeStalled("to/h1", At(10'000), kLimit, At(71'500));
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].key, 5);
  EXPECT_EQ(stalled[0].status.code(), Code::kDeadlineExceeded);
  for (const char* part : {"to/h1", "1000 bytes", "400 of them", "61.5 s of silence", "limit 60.0 s"}) {
    EXPECT_HAS(stalled[0].status.message(), part);
  }
  EXPECT_EQ(book.count(TransferState::kFailed), 1);
  EXPECT(book.TakeStalled("to/h1", At(10'000), kLimit, At(71'500)).empty());  // once
  EXPECT_EQ(book.TakeStalled("to/h1", At(10'000), kLimit, At(129'000)).size(), 1u);
}

TEST(APeerThatSpeaksIsNotSilent) {
  TransferBook book;
  book.Begin(5, 1000, At(0));
  for (int64_t ms = 0; ms < 600'000; ms += 30'000) {
    // It says how far it is, and must wait for a device.
    EXPECT(book.TakeStalled("to/h1", At(ms), kLimit, At(ms + 29'000)).empty());
  }
}

}  // namespace
}  // namespace pathways::dataplane
