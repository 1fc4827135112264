// Who may answer, and what a loss ends.
#include "csrc/client/pending.h"

#include "csrc/testing/test.h"

namespace pathways::client {
namespace {

TEST(OnlyTheHostThatWasAskedOrTheControllerAnswers) {
  Questions<int> open;
  const Question<int> question;
  open.Begin(1, question, 5);
  EXPECT_EQ(open.Take(1, 5).status().code(), Code::kPermissionDenied);  // host 4
  EXPECT(!open.Take(2, 5)->has_value());
  const auto answered = *open.Take(1, 6);
  ASSERT(answered.has_value());
  EXPECT(answered->done == question.done);
  EXPECT(!open.Take(1, 6)->has_value());
  open.Begin(3, question, 5);
  EXPECT(open.Take(3, 0)->has_value());
}

TEST(ALossEndsTheQuestionsToItsHost) {
  Questions<int> open;
  const Question<int> at_host, at_controller;
  open.Begin(1, at_host, 5);
  open.Begin(2, at_controller, kAsksController);
  Endings ended;
  open.Fail({4, Unavailable("it died")}, ended);
  EXPECT(ended.empty());
  open.Fail({5, Unavailable("it died")}, ended);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT(ended[0].first == at_host.done);
  open.Fail({std::nullopt, Cancelled("no controller")}, ended);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT(ended[1].first == at_controller.done);
  EXPECT_EQ(ended[1].second.code(), Code::kCancelled);
}

TEST(APreparationKeepsItsFirstError) {
  Preparation made{Event::Make(), std::make_shared<const std::string>("function 'f'"), {1, 2, 3}};
  made.Answer(1, OkStatus());
  made.Answer(2, InvalidArgument("first"));
  made.Answer(2, InvalidArgument("second"));
  EXPECT_EQ(made.first_error.message(), "first");
  std::vector<PendingItem> listed;
  made.List("compile", listed);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT(listed[0].hosts == (std::vector<uint32_t>{3}));
  Endings ended;
  made.Fail({2, Unavailable("it died")}, ended);
  EXPECT(ended.empty());  // it has answered
  made.Fail({3, Unavailable("it died")}, ended);
  EXPECT_EQ(ended.size(), 1u);
  listed.clear();
  made.List("compile", listed);
  EXPECT(listed.empty());
}

}  // namespace
}  // namespace pathways::client
