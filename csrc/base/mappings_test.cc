#include "csrc/base/mappings.h"

#include <sys/mman.h>

#include <vector>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(MappingsAreCounted) {
  const Mappings before = MappingsNow(0);
  ASSERT(before.most > before.used && before.used > 0);
  std::vector<void*> made;
  for (int i = 0; i < 200; ++i) {  // neighbours of one kind would be one
    made.push_back(::mmap(nullptr, 4096, i % 2 == 0 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  const Mappings now = MappingsNow(0);
  EXPECT_LE(before.used + 150, now.used);
  EXPECT_EQ(MappingsNow(1000).most, 1000);
  EXPECT_EQ(MappingsNow(now.used / 2).free_percent(), 0);
  for (void* mapping : made) ::munmap(mapping, 4096);
  EXPECT_EQ((Mappings{250, 1000}.free_percent()), 75);
  EXPECT_EQ(Mappings().free_percent(), 100);
}

}  // namespace
}  // namespace pathways
