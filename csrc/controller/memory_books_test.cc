// What lies where, without anybody who waits.
#include "csrc/controller/memory_books.h"

#include "csrc/testing/test.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {
namespace {

uint64_t IdInBooks(uint32_t client, uint64_t n) { return (uint64_t{client} << wire::kClientShift) | n; }

MemoryRequest RunOnBothDevices(int64_t made, int64_t scratch) {
  MemoryRequest request;
  request.id = IdInBooks(1, 10);
  request.client = 1;
  request.is_run = true;
  request.hosts = {0};
  request.devices = {0, 1};
  if (made > 0) request.made = {{IdInBooks(1, 11), made, 0, 2}};
  if (scratch > 0) request.scratch = {{0, scratch}, {1, scratch}};
  return request;
}

MemoryBooks BooksOfTwoDevices(int64_t limit) {
  MemoryBooks books;
  books.AddHost(0, 0, std::vector<int64_t>{limit, limit}, 1000);
  return books;
}

// What comes back from host memory for a request that is granted.
std::vector<MemoryOrder> Granted(MemoryBooks& books, const MemoryRequest& request) {
  std::vector<MemoryOrder> orders;
  EXPECT(books.Evaluate(request, false));
  books.Enter(request, &orders);
  return orders;
}

TEST(BooksCountWhatIsMadeAndWhatRuns) {
  MemoryBooks books = BooksOfTwoDevices(100);
  const MemoryRequest run = RunOnBothDevices(30, 50);
  std::vector<MemoryOrder> orders;
  ASSERT(books.Evaluate(run, false));
  EXPECT(books.Fits(1));
  EXPECT_EQ(books.touched().size(), 2u);
  books.Enter(run, &orders);
  EXPECT(orders.empty());
  for (const MemoryBooks::Device& device : books.devices()) {
    EXPECT_EQ(device.used, 30);
    EXPECT_EQ(device.running, 50);
  }
  const uint64_t before = books.generation();
  books.EndPart(run.id, 0);
  EXPECT(books.generation() != before);
  EXPECT_EQ(books.devices()[1].running, 0);
  books.FreeClient(1);
  EXPECT_EQ(books.devices()[0].used, 0);
}

TEST(BooksTakeWhatIsGivenUpFromWhatIsAskedOnce) {
  MemoryBooks books = BooksOfTwoDevices(100);
  EXPECT(Granted(books, RunOnBothDevices(80, 0)).empty());
  MemoryRequest next = RunOnBothDevices(90, 0);
  next.id = IdInBooks(1, 20);
  next.made[0].buffer = IdInBooks(1, 21);
  next.arguments = {IdInBooks(1, 11), IdInBooks(1, 11)};
  next.donated = next.arguments;
  ASSERT(books.Evaluate(next, false));
  EXPECT_EQ(books.devices()[0].arguments, 80);
  EXPECT_EQ(books.devices()[0].donated, 80);
  EXPECT_EQ(books.devices()[0].asked(), 10);
  EXPECT(books.Fits(1));
  books.CloseFor(0, 2);
  EXPECT(!books.Fits(1));
  books.OpenFrom(2);
  EXPECT(books.Fits(1));
  EXPECT(!books.NeverFits());
}

TEST(BooksFollowABufferToHostMemoryAndBack) {
  MemoryBooks books = BooksOfTwoDevices(100);
  EXPECT(Granted(books, RunOnBothDevices(40, 0)).empty());
  const MemoryOrder spill{0, false, {IdInBooks(1, 11)}};
  books.Leave(spill);
  EXPECT_EQ(books.devices()[1].leaving, 40);
  EXPECT_EQ(books.hosts()[0].staged, 80);
  MemoryRequest user = RunOnBothDevices(0, 0);
  user.arguments = spill.buffers;
  EXPECT(!books.Evaluate(user, false));  // it is on its way
  books.Spilled(0, spill.buffers);
  EXPECT_EQ(books.devices()[1].used, 0);
  ASSERT(books.Evaluate(user, false));
  EXPECT_EQ(books.devices()[1].restored, 40);
  const std::vector<MemoryOrder> orders = Granted(books, user);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT(orders[0].restore && orders[0].buffers == spill.buffers);
  EXPECT_EQ(books.hosts()[0].staged, 0);
  EXPECT_EQ(books.devices()[1].used, 40);
}

}  // namespace
}  // namespace pathways::controller
