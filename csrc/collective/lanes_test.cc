// Messages of hosts that are not known yet.
#include "csrc/collective/lanes.h"

#include <condition_variable>
#include <mutex>
#include <set>

#include "csrc/collective/test_support.h"

namespace pathways::collective {
namespace {

constexpr std::chrono::seconds kLanesPatience{20};

// Notes whose transfers have come.
class Arrivals : public NoTransfers {
 public:
  void OnBytes(std::string_view peer, uint64_t, uint64_t, uint64_t, std::span<const std::byte>,
               transport::BulkLease) override {
    std::lock_guard lock(mutex_);
    came_.insert(std::string(peer));
    changed_.notify_all();
  }
  bool Wait(const std::string& peer) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLanesPatience, [&] { return came_.contains(peer); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> came_;
};

TEST(AHostThatIsNotKnownYetFillsNobodyElsesRoom) {
  EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") ? std::getenv("PW_LIBZMQ") : ""));
  Arrivals arrivals;
  const auto start = [&](const std::string& name, bool binds) {
    dataplane::DataPlaneOptions options;
    options.membership = {"lanes-test", "w/" + name, "", 0};
    if (binds) options.bind_endpoint = "tcp://127.0.0.1:*";
    options.curve.insecure = true;
    return *dataplane::DataPlane::Start(options, &arrivals);
  };
  const auto own = start("own", true);
  LanesOptions options;
  options.cluster = "lanes-test";
  options.shared_memory_bytes = 0;
  const auto lanes = Lanes::Make(options, own.get());
  const std::string bytes(100, 'x');
  // What is sent after the chunks comes after them.
  const auto send = [&](dataplane::DataPlane& from, uint32_t host, int chunks) {
    EXPECT_OK(from.ConnectTo("own", own->endpoint(), ""));
    for (int n = 0; n < chunks; ++n) {
      wire::CollectiveChunk chunk;
      chunk.source_host = host;
      chunk.total = bytes.size();
      transport::Frames frames;
      frames.emplace_back(wire::Encode(chunk));
      frames.emplace_back(std::string_view(bytes));
      EXPECT_OK(from.SendMessage("to/own", std::move(frames)));
    }
    from.Send("to/own", host, {bytes.data(), bytes.size()}, [](const Status&) {});
  };
  const auto many = start("many", false), one = start("one", false);
  send(*many, 1, 6000);
  ASSERT(arrivals.Wait("w/many"));
  send(*one, 2, 1);
  ASSERT(arrivals.Wait("w/one"));
  lanes->SetHost({2, "one", false});
  InLane* const lane = lanes->In(2, 0, 0);
  const auto deadline = std::chrono::steady_clock::now() + kLanesPatience;
  while (lane->Peek() == nullptr && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT(lane->Peek() != nullptr);
  lanes->Detach();
  for (const auto* data : {&many, &one, &own}) (*data)->Stop();
}

}  // namespace
}  // namespace pathways::collective
