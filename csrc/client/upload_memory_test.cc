// Memory of uploads is used again, within a limit, and outlives who handed it out.
#include "csrc/client/upload_memory.h"

#include <string>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(ABlockIsUsedAgainForTheSameSizeOnly) {
  const auto memory = std::make_shared<UploadMemory>();
  const std::string first(2 * kMiB, 'a'), second(2 * kMiB, 'b');
  auto block = memory->Copy(first.data(), first.size());
  const char* const where = block->data();
  auto other = memory->Copy(second.data(), second.size());
  EXPECT(other->data() != where);
  block.reset();
  EXPECT_EQ(memory->kept_bytes(), 2 * kMiB);
  const auto larger = memory->Copy(first.data(), first.size() - 1);
  EXPECT(larger->data() != where);
  block = memory->Copy(second.data(), second.size());
  EXPECT(block->data() == where);
  EXPECT(std::string(block->data(), block->size()) == second);
  EXPECT_EQ(memory->kept_bytes(), size_t{0});
}

TEST(WhatIsKeptHasALimitAndTheOldestGoes) {
  const auto memory = std::make_shared<UploadMemory>();
  const std::vector<char> bytes(48 * kMiB);
  std::vector<std::shared_ptr<HostMemory>> blocks;
  for (size_t n = 0; n < 4; ++n) blocks.push_back(memory->Copy(bytes.data(), bytes.size() - n));
  blocks.clear();
  EXPECT_EQ(memory->kept_bytes(), 2 * bytes.size() - 2 - 3);
  (void)memory->Copy(bytes.data(), 100);
  EXPECT_EQ(memory->kept_bytes(), 2 * bytes.size() - 2 - 3);  // small ones are the allocator's
}

TEST(ABlockOutlivesItsSession) {
  auto memory = std::make_shared<UploadMemory>();
  const std::string bytes(kMiB, 'x');
  auto block = memory->Copy(bytes.data(), bytes.size());
  memory.reset();
  EXPECT(std::string(block->data(), block->size()) == bytes);
}

}  // namespace
}  // namespace pathways::client
