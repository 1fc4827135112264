#include "csrc/compiled/code_room.h"

#include "csrc/testing/test.h"

namespace pathways::compiled {
namespace {

struct CountedHolder final : CodeHolder {
  explicit CountedHolder(bool is_in_use = false) : in_use(is_in_use) {}
  bool GiveUpCode() const override {
    ++asked;
    return !in_use;
  }
  bool in_use;
  mutable int asked = 0;
};

std::vector<std::shared_ptr<CountedHolder>> AddHolders(CodeRoom& room, size_t count) {
  std::vector<std::shared_ptr<CountedHolder>> holders;
  for (size_t i = 0; i < count; ++i) {
    holders.push_back(std::make_shared<CountedHolder>());
    room.NoteUse(*holders.back());
    room.Add(holders.back());
  }
  return holders;
}

std::vector<int> Asked(const std::vector<std::shared_ptr<CountedHolder>>& holders) {
  std::vector<int> asked;
  for (const auto& holder : holders) asked.push_back(holder->asked);
  return asked;
}

TEST(TheLessRecentlyUsedHalfGivesItsCodeUp) {
  CodeRoom room;
  const auto holders = AddHolders(room, 5);
  room.NoteUse(*holders[0]);
  room.MakeRoom(nullptr);
  EXPECT_EQ(Asked(holders), (std::vector<int>{0, 1, 1, 0, 0}));
  room.MakeRoom(nullptr);  // of the three that are left
  EXPECT_EQ(Asked(holders), (std::vector<int>{0, 1, 1, 1, 0}));
  room.Add(holders[1]);  // compiled again, and used
  room.NoteUse(*holders[1]);
  room.MakeRoom(nullptr);
  EXPECT_EQ(Asked(holders), (std::vector<int>{0, 1, 1, 1, 1}));
}

TEST(OneInUseKeepsItsCodeAndIsAskedAgain) {
  CodeRoom room;
  const auto holders = AddHolders(room, 2);
  holders[0]->in_use = true;
  room.MakeRoom(nullptr);
  holders[0]->in_use = false;
  room.MakeRoom(nullptr);
  EXPECT_EQ(Asked(holders), (std::vector<int>{2, 0}));
  room.MakeRoom(nullptr);  // the last one is never asked
  EXPECT_EQ(Asked(holders), (std::vector<int>{2, 0}));
}

TEST(TheOneThatNeedsRoomIsNotAskedAndTheDeadDoNotCount) {
  CodeRoom room;
  auto holders = AddHolders(room, 6);
  room.MakeRoom(holders[0].get());
  EXPECT_EQ(Asked(holders), (std::vector<int>{0, 1, 1, 0, 0, 0}));
  holders[5].reset();
  holders[4].reset();
  room.MakeRoom(nullptr);
  EXPECT_EQ(holders[0]->asked, 1);
  EXPECT_EQ(holders[3]->asked, 0);
}

}  // namespace
}  // namespace pathways::compiled
