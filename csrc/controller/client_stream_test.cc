#include "csrc/controller/client_stream.h"

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// Keeps messages of a client of whose programs none has places.
struct Waiting {
  template <typename Body>
  Status Keep(const Body& body, std::vector<Payload> payloads = {}) {
    std::string frame = wire::Encode(body);
    const wire::Head head = *wire::DecodeHead(frame);
    Message message{head, frame, payloads, ++arrivals};
    return stream.Push(message);
  }
  std::vector<wire::Free> Ahead() {
    return stream.TakeFrees([](uint64_t) { return nullptr; });
  }
  ClientStream stream;
  uint64_t arrivals = 0;
};

wire::Fetch FetchOf(uint64_t buffer) {
  wire::Fetch fetch;
  fetch.buffer = buffer;
  return fetch;
}

TEST(AStreamKeepsItsOrder) {
  Waiting w;
  EXPECT_OK(w.Keep(wire::Run{}));
  EXPECT_OK(w.Keep(FetchOf(1)));
  EXPECT_EQ(w.stream.runs(), 1u);
  EXPECT(w.stream.MustWait(Wait::kTurn, 7) == Outcome::kMustWait);
  EXPECT(w.stream.Front().head.header.type == wire::Type::kRun);
  w.stream.Pop();
  EXPECT(w.stream.wait() == Wait::kNothing);
  EXPECT(w.stream.Front().head.header.type == wire::Type::kFetch);
  EXPECT_EQ(w.stream.Front().arrival, 2u);
  w.stream.Pop();
  EXPECT(w.stream.empty());
}

TEST(AStreamThatIsTooLongIsRefused) {
  Waiting w;
  const auto bytes = std::make_shared<const std::string>(ClientStream::kMaxBytes - 4096, 'm');
  EXPECT_OK(w.Keep(wire::Register{}, {bytes}));
  EXPECT(w.Keep(wire::Register{}, {bytes}).code() == Code::kResourceExhausted);
}

TEST(AFreeGoesAheadOfAHeadThatWaitsForMemoryUnlessItsBufferIsNamed) {
  Waiting w;
  EXPECT_OK(w.Keep(FetchOf(1)));
  EXPECT_OK(w.Keep(wire::Free{0, {1, 2}}));
  w.stream.MustWait(Wait::kTurn, 0);
  EXPECT(w.Ahead().empty());
  w.stream.MustWait(Wait::kMemory, 0);
  const std::vector<wire::Free> ahead = w.Ahead();
  ASSERT_EQ(ahead.size(), 1u);
  EXPECT_EQ(ahead[0].buffers, (std::vector<uint64_t>{2}));
  EXPECT(w.Ahead().empty());  // once
  w.stream.Pop();
  EXPECT_EQ(wire::Decode<wire::Free>(w.stream.Front().head.body)->buffers, (std::vector<uint64_t>{1}));
}

}  // namespace
}  // namespace pathways::controller
