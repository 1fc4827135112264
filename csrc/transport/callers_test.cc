// Strangers at a listener: not many at a time, and not for long.
#include "csrc/transport/callers.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <set>

#include "csrc/testing/test.h"

namespace pathways::transport {
namespace {

// Connected pairs; the first of each is a listener's.
struct Accepted {
  std::vector<std::array<int, 2>> pairs;
  explicit Accepted(size_t count) : pairs(count) {
    for (auto& pair : pairs) EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  }
  ~Accepted() {
    for (auto& pair : pairs) ::close(pair[0]), ::close(pair[1]);
  }
  bool HungUp(size_t index) const {
    pollfd end{pairs[index][1], POLLIN, 0};
    return ::poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
  }
};

TEST(ThoseThatAreTooManyAreHungUpOn) {
  const Accepted accepted(5);
  Callers callers({3, 100});
  for (const auto& pair : accepted.pairs) callers.Accepted(pair[0], false);
  callers.Enforce();
  EXPECT_EQ(callers.mute(), 3);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(accepted.HungUp(i), i < 2);
  Callers one_by_one({2, 100});
  const Accepted later(5);
  for (const auto& pair : later.pairs) {
    one_by_one.Accepted(pair[0], false);
    one_by_one.Enforce();
    if (pair == later.pairs[0]) one_by_one.Spoke(pair[0]);
  }
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(later.HungUp(i), i == 1 || i == 2);  // the first has spoken
  one_by_one.HangUp(later.pairs[0][0]);
  EXPECT(later.HungUp(0));
  one_by_one.Ended(later.pairs[3][0]);
  one_by_one.Ended(later.pairs[4][0]);
  EXPECT_EQ(one_by_one.mute(), 0);
}

TEST(StrangersAreBorneForAWhileAndKnownOnesForGood) {
  const Accepted accepted(3);
  Callers callers({});
  for (const auto& pair : accepted.pairs) callers.Accepted(pair[0], false);
  callers.Enforce();
  const auto start = Callers::Clock::now();
  const std::set<int> known = {accepted.pairs[1][0]};
  const auto is_known = [&](int fd) { return known.contains(fd); };
  callers.DropStrangers(start, std::chrono::seconds(10), is_known);
  EXPECT_EQ(callers.mute(), 2);
  for (size_t i = 0; i < 3; ++i) EXPECT(!accepted.HungUp(i));
  callers.DropStrangers(start + std::chrono::seconds(11), std::chrono::seconds(10), [](int) { return false; });
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(accepted.HungUp(i), i != 1);
}

TEST(ADescriptorThatIsAnothersByNowIsLeftAlone) {
  Accepted accepted(2);
  Callers callers({});
  callers.Accepted(accepted.pairs[0][0], false);
  callers.Enforce();
  ASSERT(::dup2(accepted.pairs[1][0], accepted.pairs[0][0]) >= 0);
  callers.DropStrangers(Callers::Clock::now() + std::chrono::hours(1), std::chrono::seconds(1),
                        [](int) { return false; });
  EXPECT(!accepted.HungUp(1));
}

}  // namespace
}  // namespace pathways::transport
