#include "csrc/worker/root_causes.h"

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

struct FailingRun {
  explicit FailingRun(std::string line) : line(std::move(line)) {}
  const std::string line;
  std::shared_ptr<store::Origin> origin = std::make_shared<store::Origin>();
  RootCauses::Inputs inputs;

  void Reads(const FailingRun& other) {
    store::Object object(1);
    object.origin = other.origin;
    RootCauses::Note(object, inputs);
  }
  // The message of the cause with which it ends, when the plugin says `text` of it.
  std::string Fails(const RootCauses& causes, const std::string& text) {
    const Status cause = causes.Find(Internal(text), inputs, origin.get(),
                                     [this](const Status& status) { return status.WithPrefix(line); });
    RootCauses::End(*origin, cause);
    return std::string(cause.message());
  }
};

TEST(EqualTextsOfRunsThatShareNothingAreEachItsOwn) {
  const RootCauses causes;
  FailingRun first("a.py:1"), second("b.py:2"), after_second("c.py:3");
  after_second.Reads(second);
  EXPECT_EQ(first.Fails(causes, "out of memory: 64 bytes"), "a.py:1: out of memory: 64 bytes");
  EXPECT_EQ(second.Fails(causes, "out of memory: 64 bytes"), "b.py:2: out of memory: 64 bytes");
  EXPECT_EQ(after_second.Fails(causes, "Error dispatching computation: out of memory: 64 bytes"),
            "b.py:2: out of memory: 64 bytes");
}

TEST(AChainNamesItsFirst) {
  const RootCauses causes;
  FailingRun first("a.py:1"), second("b.py:2"), third("c.py:3");
  second.Reads(first);
  third.Reads(second);
  (void)first.Fails(causes, "nan");
  EXPECT_EQ(second.Fails(causes, "Error dispatching computation: nan"), "a.py:1: nan");
  EXPECT_EQ(third.Fails(causes, "Error dispatching computation: Error dispatching computation: nan"), "a.py:1: nan");
}

TEST(AFailureOfItsOwnIsNotItsInputs) {
  const RootCauses causes;
  FailingRun program("a.py:1"), reader("b.py:2");
  reader.Reads(program);
  (void)program.Fails(causes, "one of several results");
  EXPECT_EQ(reader.Fails(causes, "something else"), "b.py:2: something else");
}

TEST(WhoHearsOfItsFailureBeforeItsInputWaits) {
  const RootCauses causes;
  FailingRun first("a.py:1"), second("b.py:2");
  second.Reads(first);
  std::string said;
  ASSERT(RootCauses::MustWait(second.inputs, [&] { said = second.Fails(causes, "nan"); }));
  EXPECT_EQ(said, "");
  (void)first.Fails(causes, "nan");
  EXPECT_EQ(said, "a.py:1: nan");
  EXPECT(!RootCauses::MustWait(second.inputs, [] {}));
}

TEST(RunsThatWentWellAreNotKept) {
  FailingRun fine("a.py:1"), reader("b.py:2");
  RootCauses::End(*fine.origin, OkStatus());
  reader.Reads(fine);
  EXPECT(reader.inputs.empty());
}

TEST(CausesFromElsewhereNameThemselves) {
  RootCauses causes;
  causes.Remember("host 'h1' is lost", Unavailable("host 'h1' is lost"));
  FailingRun run("a.py:1");
  EXPECT_EQ(run.Fails(causes, "collective: host 'h1' is lost"), "host 'h1' is lost");
  for (int i = 0; i < 100; ++i) causes.Remember("other " + std::to_string(i), Internal("x"));
  EXPECT_HAS(FailingRun("b.py:2").Fails(causes, "host 'h1' is lost"), "b.py:2");
}

}  // namespace
}  // namespace pathways::worker
