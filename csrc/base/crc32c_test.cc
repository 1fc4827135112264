#include "csrc/base/crc32c.h"

#include <string>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(ChecksumsAreThoseOfTheStandard) {  // RFC 3720, B.4
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  for (auto* crc : {&Crc32c, &internal::Crc32cOfTable}) {
    EXPECT_EQ((*crc)("", 0, 0), 0u);
    EXPECT_EQ((*crc)("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ((*crc)(std::string(32, '\0').data(), 32, 0), 0x8a9136aau);
    EXPECT_EQ((*crc)(ascending.data(), 32, 0), 0x46dd794eu);
    EXPECT_EQ((*crc)("6789", 4, (*crc)("12345", 5, 0)), 0xe3069283u);
  }
}

}  // namespace
}  // namespace pathways
