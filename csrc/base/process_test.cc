#include "csrc/base/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(AProcessIsGoneOnceItHasEnded) {
  EXPECT(!ProcessSpace().empty());
  EXPECT(!ProcessIsGone(static_cast<uint64_t>(getpid())));
  EXPECT(!ProcessIsGone(0));           // not known
  EXPECT(!ProcessIsGone(UINT64_MAX));  // no id
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  EXPECT(!ProcessIsGone(static_cast<uint64_t>(child)));
  EXPECT_EQ(kill(child, SIGKILL), 0);
  siginfo_t info;
  EXPECT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT(ProcessIsGone(static_cast<uint64_t>(child)));  // only its exit status is left
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT(ProcessIsGone(static_cast<uint64_t>(child)));
}

TEST(AForkedChildKnowsThatItIsOne) {
  NoteForks();
  EXPECT_EQ(ForkedFrom(), 0);
  const int parent = static_cast<int>(getpid());
  const pid_t child = fork();
  if (child == 0) _exit(ForkedFrom() == parent ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pathways
