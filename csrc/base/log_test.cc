#include "csrc/base/log.h"

#include "csrc/testing/test.h"

namespace pathways::logging {
namespace {

TEST(ALineNamesWhoSaysIt) {
  EXPECT_EQ(Line("worker a", "x\ny"), std::string("ptpathways worker a: x y\n"));
  EXPECT_EQ(Line("", "x"), std::string("ptpathways: x\n"));
}

TEST(AProcessSaysWhatIsOfItsLevelOrAbove) {
  EXPECT(LevelOf("info") == Level::kInfo);
  EXPECT(LevelOf("") == Level::kWarning);
  EXPECT(!Says(Level::kInfo));
  EXPECT(Says(Level::kWarning));
  SetLevel(LevelOf("error"));
  EXPECT(!Says(Level::kWarning));
  SetLevel(LevelOf("debug"));
  EXPECT(Says(Level::kInfo));
  SetLevel(Level::kWarning);
}

}  // namespace
}  // namespace pathways::logging
