// Who ends a fetch, and when.
#include "csrc/client/fetches.h"

#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

struct OneFetch {
  char bytes[8] = {};
  std::shared_ptr<Event> done = Event::Make();
  Fetches fetches;
  Endings ended;
  OneFetch() { fetches.Begin(1, {done, bytes, 8, 0, 5}); }
  void LoseHost(uint32_t lost) { fetches.Fail({lost, Unavailable("it died")}, ended); }
};

TEST(AFetchEndsWithItsLastBytes) {
  OneFetch c;
  EXPECT(c.fetches.StartWrite(1, 0, 4, 8) == c.bytes);
  EXPECT(!c.fetches.EndWrite(1, 4));
  EXPECT(c.fetches.StartWrite(1, 4, 4, 8) == c.bytes + 4);
  const std::optional<Ended> ended = c.fetches.EndWrite(1, 4);
  ASSERT(ended.has_value());
  EXPECT(ended->first == c.done);
  ASSERT_OK(ended->second);
  EXPECT(c.fetches.StartWrite(1, 0, 4, 8) == nullptr);
}

TEST(BytesThatDoNotFitHaveNoPlace) {
  OneFetch c;
  EXPECT(c.fetches.StartWrite(2, 0, 4, 8) == nullptr);
  EXPECT(c.fetches.StartWrite(1, 0, 4, 9) == nullptr);
  EXPECT(c.fetches.StartWrite(1, 5, 4, 8) == nullptr);
  EXPECT(c.fetches.StartWrite(1, UINT64_MAX, 4, 8) == nullptr);
}

TEST(AHostThatIsLostWhileItsBytesAreCopiedEndsTheFetchAfterTheCopy) {
  OneFetch c;
  ASSERT(c.fetches.StartWrite(1, 0, 4, 8) != nullptr);
  c.LoseHost(5);
  EXPECT(c.ended.empty());  // whoever waits would free what is being written
  EXPECT(!c.fetches.Take(1, Cancelled("given up")));
  EXPECT(c.fetches.IsBeingWritten(1));
  const std::optional<Ended> ended = c.fetches.EndWrite(1, 4);
  ASSERT(ended.has_value());
  EXPECT_EQ(ended->second.code(), Code::kUnavailable);
  EXPECT(!c.fetches.Take(1, OkStatus()));
}

TEST(AHostThatIsLostBetweenTwoPiecesEndsTheFetchAtOnce) {
  OneFetch c;
  ASSERT(c.fetches.StartWrite(1, 0, 4, 8) != nullptr);
  EXPECT(!c.fetches.EndWrite(1, 4));
  c.LoseHost(4);
  EXPECT(c.ended.empty());
  c.LoseHost(5);
  ASSERT_EQ(c.ended.size(), 1u);
  EXPECT(c.fetches.StartWrite(1, 4, 4, 8) == nullptr);
}

}  // namespace
}  // namespace pathways::client
