// Pinned memory with a pinner that keeps books.
#include "csrc/base/pinned_memory.h"

#include <cstring>
#include <map>
#include <optional>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class Books : public Pinner {
 public:
  bool Pin(void* data, size_t size) override {
    if (refuse) return false;
    ++pins;
    return sizes.emplace(data, size).second;
  }
  void Unpin(void* data) override { wrong += sizes.erase(data) == 0; }

  std::map<void*, size_t> sizes;
  int pins = 0;
  int wrong = 0;  // unpinned, and was not pinned
  bool refuse = false;
};

TEST(PinnedBlocksAreUsedAgain) {
  auto books = std::make_shared<Books>();
  PinnedMemory memory(books);
  char* first = nullptr;
  {
    const std::shared_ptr<char> block = memory.Take(3 * kMiB);
    first = block.get();
    std::memset(first, 1, 3 * kMiB);
    EXPECT_EQ(books->sizes.at(first), 3 * kMiB);
    EXPECT(memory.Take(3 * kMiB).get() != first);
  }
  EXPECT_EQ(books->pins, 2);
  const std::shared_ptr<char> again = memory.Take(3 * kMiB - 100);  // nearly as large
  EXPECT(books->sizes.contains(again.get()));
  EXPECT_EQ(books->pins, 2);
  const std::shared_ptr<char> small = memory.Take(kMiB);  // a third of it: gets its own
  EXPECT_EQ(books->pins, 3);
  EXPECT_EQ(memory.pinned(), 7 * kMiB);
}

TEST(SmallRequestsAreNotPinned) {
  auto books = std::make_shared<Books>();
  PinnedMemory memory(books);
  const std::shared_ptr<char> block = memory.Take(1000);
  std::memset(block.get(), 1, 1000);
  EXPECT_EQ(books->pins, 0);
}

TEST(WhatWaitsIsBounded) {
  auto books = std::make_shared<Books>();
  PinnedMemory memory(books, {.smallest = kMiB, .kept = 4 * kMiB, .most = 64 * kMiB});
  {
    const std::shared_ptr<char> a = memory.Take(3 * kMiB), b = memory.Take(4 * kMiB);
    EXPECT_EQ(memory.pinned(), 7 * kMiB);
  }
  EXPECT(memory.pinned() <= 4 * kMiB);
  EXPECT_EQ(books->sizes.size(), size_t{1});
  EXPECT_EQ(books->wrong, 0);
}

TEST(BeyondTheMostMemoryIsPlain) {
  auto books = std::make_shared<Books>();
  PinnedMemory memory(books, {.smallest = kMiB, .kept = 8 * kMiB, .most = 8 * kMiB});
  const std::shared_ptr<char> a = memory.Take(6 * kMiB);
  const std::shared_ptr<char> b = memory.Take(6 * kMiB);
  EXPECT(books->sizes.contains(a.get()));
  EXPECT(!books->sizes.contains(b.get()));
  std::memset(b.get(), 1, 6 * kMiB);
  EXPECT_EQ(memory.pinned(), 6 * kMiB);
}

TEST(BlocksOfOtherSizesMakeRoom) {
  auto books = std::make_shared<Books>();
  PinnedMemory memory(books, {.smallest = kMiB, .kept = 8 * kMiB, .most = 8 * kMiB});
  memory.Take(kMiB).reset();
  const std::shared_ptr<char> large = memory.Take(8 * kMiB);
  EXPECT(books->sizes.contains(large.get()));
  EXPECT_EQ(books->wrong, 0);
}

TEST(ARefusedPinGivesPlainMemory) {
  auto books = std::make_shared<Books>();
  books->refuse = true;
  PinnedMemory memory(books);
  const std::shared_ptr<char> block = memory.Take(2 * kMiB);
  std::memset(block.get(), 1, 2 * kMiB);
  EXPECT_EQ(memory.pinned(), size_t{0});
  EXPECT_EQ(PinnedMemory(nullptr).pinned(), size_t{0});
  EXPECT(PinnedMemory(nullptr).Take(2 * kMiB) != nullptr);
}

TEST(BlocksOutliveThePool) {
  auto books = std::make_shared<Books>();
  std::shared_ptr<char> block;
  {
    std::optional<PinnedMemory> memory(std::in_place, books);
    block = memory->Take(2 * kMiB);
  }
  std::memset(block.get(), 1, 2 * kMiB);
  EXPECT_EQ(books->sizes.size(), size_t{1});
  block.reset();
  EXPECT(books->sizes.empty());
  EXPECT_EQ(books->wrong, 0);
}

}  // namespace
}  // namespace pathways
