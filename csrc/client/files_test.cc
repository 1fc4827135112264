// What is asked of hosts about files ends, whatever becomes of the host.
#include "csrc/client/files.h"

#include "csrc/client/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

struct SomeFiles : TestCore {
  FileOperation LoadAt(uint32_t host) {
    wire::Load load;
    load.host = host;
    return files.Load(load);
  }

  Files files{core};
};

TEST(ALoadHasItsOutcomeFromItsHostOnly) {
  SomeFiles c;
  const FileOperation load = c.LoadAt(1);
  wire::Stored stored;
  stored.request = c.wire->Last<wire::Load>().request;
  stored.bytes = 7;
  EXPECT_EQ(c.files.OnStored(stored, {.from = 1}).code(), Code::kPermissionDenied);
  EXPECT(!load.done->IsReady());
  EXPECT_OK(c.files.OnStored(stored, {.from = 2}));
  EXPECT_OK(*load.done->TryGet());
  EXPECT_EQ(load.answer->bytes, 7u);
}

TEST(ALoadAtAHostThatCannotAnswerEnds) {
  SomeFiles c;
  EXPECT_EQ(c.LoadAt(2).done->TryGet()->code(), Code::kInvalidArgument);
  const FileOperation under_way = c.LoadAt(0);
  {
    std::lock_guard lock(c.core.mutex);
    EXPECT(c.core.hosts.Lose(0, "host 'h0' is lost"));
  }
  EXPECT_EQ(c.LoadAt(0).done->TryGet()->message(), "host 'h0' is lost");
  EXPECT(!under_way.done->IsReady());
  c.Lose(c.files, {0, Unavailable("host 'h0' is lost")});
  EXPECT_EQ(under_way.done->TryGet()->message(), "host 'h0' is lost");
  c.core.closed = true;
  EXPECT_EQ(c.LoadAt(1).done->TryGet()->message(), "the session is closed");
  EXPECT_EQ(c.wire->All<wire::Load>().size(), 1u);
}

}  // namespace
}  // namespace pathways::client
