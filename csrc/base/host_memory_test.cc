#include "csrc/base/host_memory.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

constexpr size_t kLarge = (size_t{5} << 20) + 3;  // no multiple of a page of any size

TEST(HoldsACopy) {
  for (size_t size : {size_t{1}, size_t{4095}, kLarge}) {
    const std::string source(size, 'x');
    HostMemory memory(source.data(), source.size());
    ASSERT_EQ(memory.size(), size);
    EXPECT(std::memcmp(memory.data(), source.data(), size) == 0);
  }
}

TEST(ZeroedIsZeroWhateverWasThereBefore) {
  for (size_t size : {size_t{100}, kLarge}) {
    {
      HostMemory before(size);
      std::memset(before.data(), 1, size);
    }
    const HostMemory memory = HostMemory::Zeroed(size);
    EXPECT(std::string(memory.data(), memory.size()) == std::string(size, '\0'));
  }
}

TEST(LargeOnesStartAtAHugePage) {
  const HostMemory memory(kLarge);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (size_t{2} << 20), 0u);
}

TEST(EmptyAndMoved) {
  const HostMemory empty(nullptr, 0);
  EXPECT_EQ(empty.size(), 0u);
  EXPECT(empty.data() == nullptr);
  HostMemory from("abc", 3);
  const HostMemory to = std::move(from);
  EXPECT_EQ(std::string(to.data(), to.size()), std::string("abc"));
  EXPECT_EQ(from.size(), 0u);  // NOLINT: what is left is an empty one
}

TEST(WhatNoMachineHasThrows) {
  for (size_t size : {SIZE_MAX, SIZE_MAX - (size_t{4} << 20)}) {
    bool thrown = false;
    try {
      const HostMemory memory(size);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    EXPECT(thrown);
  }
}

}  // namespace
}  // namespace pathways
