// What the thread that waits for disks does when they, or memory, do not come.
#include "csrc/worker/file_thread.h"

#include <future>

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

constexpr size_t kNoMachineHas = size_t{1} << 60;

TEST(MemoryThatIsNotThereIsSaidAndNotCounted) {
  FileThread files;
  EXPECT_EQ(files.Borrow(kNoMachineHas, false).status().code(), Code::kResourceExhausted);
  // Waits when something is counted as out.
  EXPECT_OK(files.Borrow(8, true, 8, std::chrono::seconds(0)).status());
}

TEST(CopiesAreBoundedAndComeBack) {
  FileThread files;
  Result<std::shared_ptr<HostMemory>> first = files.Copy(60, 100);
  ASSERT_OK(first.status());
  const Status refused = files.Copy(50, 100).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT(refused.message().find("60 in use") != std::string::npos);
  EXPECT_EQ(files.Copy(101, 100).status().code(), Code::kResourceExhausted);
  first->reset();
  EXPECT_OK(files.Copy(100, 100).status());
}

TEST(AJobThatDoesNotEndDoesNotKeepItsWorker) {
  std::promise<void> begun, release;
  std::promise<void> ended;
  {
    FileThread files;
    files.Submit([&] {
      begun.set_value();
      release.get_future().wait();
      ended.set_value();
    });
    begun.get_future().wait();
    EXPECT(!files.Stop(std::chrono::seconds(0)));
  }
  release.set_value();
  EXPECT(ended.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  FileThread idle;
  EXPECT(idle.Stop(std::chrono::seconds(20)));
}

}  // namespace
}  // namespace pathways::worker
