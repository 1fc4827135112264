// What waits for an answer says, when none comes.
#include "csrc/client/queries.h"

#include "csrc/client/slices.h"
#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

struct SomeQueries : TestCore {
  Waiting waiting;
  Functions functions{core, waiting};
  Queries queries{core, functions};
};

TEST(AQueryWithoutAnAnswerNamesWhomItAsked) {
  SomeQueries c;
  const Status late = c.queries.Ask(wire::QueryKind::kActivity, 0, 1, std::chrono::milliseconds(1)).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "expected host 'h1' to answer within 1 ms, got nothing");
  EXPECT_HAS(c.queries.ClusterStatus(std::chrono::milliseconds(1)).status().message(), "expected the controller to");
}

TEST(AFeedIsAnsweredByItsHostOnly) {
  SomeQueries c;
  wire::Feed feed;
  feed.host = 1;
  const Result<Query> fed = c.queries.Feed(feed);
  ASSERT_OK(fed.status());
  wire::Reply reply;
  reply.request = c.wire->Last<wire::Feed>().request;
  reply.format = "bytes";
  EXPECT_EQ(c.queries.OnReply(reply, {.from = 1}).code(), Code::kPermissionDenied);
  EXPECT(!fed->done->IsReady());
  EXPECT_OK(c.queries.OnReply(reply, {2, {std::make_shared<const std::string>("payload")}}));
  EXPECT_OK(*fed->done->TryGet());
  EXPECT_EQ(fed->answer->format, "bytes");
  EXPECT_EQ(fed->answer->payload, "payload");
}

TEST(NothingIsAskedOfALostHostOrOfAClosedSession) {
  SomeQueries c;
  {
    std::lock_guard lock(c.core.mutex);
    EXPECT(c.core.hosts.Lose(1, "host 'h1' is lost"));
  }
  wire::Feed feed;
  feed.host = 1;
  EXPECT_EQ(c.queries.Feed(feed).status().message(), "host 'h1' is lost");
  feed.host = 0;
  const Result<Query> fed = c.queries.Feed(feed);
  ASSERT_OK(fed.status());
  c.Lose(c.queries, {0, Unavailable("host 'h0' is lost")});
  EXPECT_EQ(fed->done->TryGet()->code(), Code::kUnavailable);
  c.core.closed = true;
  Slices slices(c.core);
  EXPECT_EQ(slices.Request({}, std::chrono::milliseconds(1)).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace pathways::client
