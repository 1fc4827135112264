// A standby is the controller it follows, after every history (history_test_support.h): its state and messages equal
// the controller's, and members have each message once, in order.
#include "csrc/controller/core.h"

#include "csrc/controller/history_test_support.h"
#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

using history::TextOf;
using history::World;

TEST(AStandbyIsWhatTheControllerIsAfterEveryHistory) {
  int takeovers = 0, finished = 0, unfinished = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    World world(seed, seed % 4 == 0 ? 1 << 16 : 0);
    world.hosts_may_die = seed % 4 == 1;
    for (int i = 0; i < 1500; ++i) {
      world.Step();
      if (i % 50 == 0) world.Compare();
    }
    world.Quiesce();
    world.Compare();
    takeovers += world.takeovers;
    for (const auto& peer : world.peers) {
      for (const auto& [run, times] : peer->executed) EXPECT_EQ(times, 1);
      if (peer->dead || peer->is_worker) continue;
      for (const auto& [run, times] : peer->done) {
        EXPECT_LE(times, 1);
        ++(times == 1 ? finished : unfinished);
        // With little memory some wait for ever; what needs a lost host the client knows by itself.
        const bool all_finish = world.memory == 0 && !world.host_died && !peer->refused;
        if (all_finish) EXPECT_EQ(times, 1);
        refused += peer->refused;
      }
      for (const auto& [request, times] : peer->fetched) EXPECT_LE(times, 1);
    }
  }
  EXPECT_LT(150, takeovers);
  EXPECT_LT(1000, finished);
  std::printf("  %d takeovers, %d runs finished, %d not, %d refused\n", takeovers, finished, unfinished, refused);
}

TEST(AStandbyLetsFetchesWaitAsTheControllerDoes) {
  constexpr uint32_t kFetches = FetchRound::kMost + 100;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    World world(seed, 0);
    world.may_die = false;
    for (const bool is_worker : {true, true, false, false, false}) world.Add(is_worker);
    world.Settle();
    const uint32_t dies_at = seed % 2 == 0 ? FetchRound::kMost + 50 : static_cast<uint32_t>(world.Pick(kFetches));
    for (uint32_t i = 0; i < kFetches; ++i) {
      for (auto& peer : world.peers) {
        if (!peer->is_worker) world.Fetch(*peer, 0);
      }
      if (i != dies_at) continue;
      EXPECT_EQ(world.primary->state().StatusJson(world.now).find("latest fetches") != std::string::npos,
                i >= FetchRound::kMost);
      world.killed = true;
      world.Settle();
      world.Tick(50);  // everybody is back
    }
    world.Compare();
    for (auto& peer : world.peers) {  // one host after the other tells what it has taken
      world.Beat(*peer);
      world.Settle();
      world.Compare();
    }
    world.killed = true;
    world.Settle();
    world.Quiesce();
    world.Compare();
    EXPECT_EQ(world.takeovers, 2);
    for (const auto& peer : world.peers) {
      if (!peer->is_worker) EXPECT_EQ(peer->fetched.size(), kFetches);
      for (const auto& [request, times] : peer->fetched) EXPECT_EQ(times, 1);
    }
  }
}

TEST(TheLogSaysFromWhereAMemberComesIfFromElsewhere) {
  World world(1, 0);
  world.may_die = false;
  (void)world.Add(true);
  EXPECT_HAS(world.of_primary, "has joined from 10.0.0.100");
  wire::Hello hello;
  hello.role = wire::Role::kClient;
  hello.build = "0.1.0";
  hello.name = "embedded";
  Core::Effects effects;
  world.primary->ApplyLocal(
      [&](ClusterState& state, Outputs& out) { state.OnMessage("local/1", wire::Encode(hello), {}, world.now, out); },
      effects);
  EXPECT_HAS(TextOf(effects), "has joined\n");
}

// Whatever becomes of connections and of the controller's process meanwhile.
TEST(AllMembersKnowTheNextTokenBeforeItIsAskedFor) {
  World world(1, 0);
  world.may_die = false;
  for (const bool is_worker : {true, true, false}) world.Add(is_worker);
  world.Tick(50);
  world.Close(world.peers[1]->route);  // it hears of nothing until it is back
  world.peers[1]->route.clear();
  Input rotate;
  rotate.kind = Input::Kind::kRotate;
  rotate.head = "of the cluster\nof workers\nof clients";
  world.Give(std::move(rotate));
  world.Settle();
  EXPECT_EQ(world.peers[0]->next_token, "of workers");
  EXPECT_EQ(world.peers[2]->next_token, "of clients");
  EXPECT(!world.primary->RotationIsKnown());  // nobody has said so
  for (const int i : {0, 2}) world.Beat(*world.peers[static_cast<size_t>(i)]);
  EXPECT(!world.primary->RotationIsKnown());

  EXPECT(world.Add(false).dead);  // refused
  world.killed = true;
  world.Settle();
  EXPECT(world.primary->rotation().has_value());
  EXPECT_EQ(world.primary->token(), "");
  EXPECT(!world.primary->RotationIsKnown());
  for (int i = 0; i < 2; ++i) world.Tick(50);  // everybody is back, and says what it has
  EXPECT_EQ(world.peers[1]->next_token, "of workers");
  EXPECT(world.primary->RotationIsKnown());

  Input rotated;
  rotated.kind = Input::Kind::kRotated;
  world.Give(std::move(rotated));
  world.Settle();
  world.Compare();
  EXPECT(!world.primary->rotation().has_value());
  EXPECT_EQ(world.primary->token(), "of the cluster");
  EXPECT_EQ(world.standby->token(), "of the cluster");
  EXPECT(world.Add(false).welcomed);
}

TEST(AMemberThatIsGoneNeedsNotKnowTheNextToken) {
  World world(1, 0);
  world.may_die = false;
  for (const bool is_worker : {true, false}) world.Add(is_worker);
  world.Tick(50);
  Input rotate;
  rotate.kind = Input::Kind::kRotate;
  rotate.head = "a\nb\nc";
  world.peers[1]->dead = true;
  world.Close(world.peers[1]->route);
  world.Give(std::move(rotate));
  world.Settle();
  world.Beat(*world.peers[0]);
  EXPECT(!world.primary->RotationIsKnown());
  for (int i = 0; i < 100; ++i) world.Tick(50);
  EXPECT(world.primary->RotationIsKnown());
}

TEST(ARecordThatIsCutOffOrChangedIsNoInput) {
  Input input;
  input.kind = Input::Kind::kMessage;
  input.route = "r";
  input.sender = "client";
  input.address = "10.0.0.7";
  input.head = "head";
  input.payloads = {std::make_shared<const std::string>("one"), std::make_shared<const std::string>("")};
  input.gone = {7};
  std::string record;
  RecordOf encoder;
  for (const std::string_view piece : encoder.Encode(input)) record += piece;
  const Result<Input> same = InputOf(record);
  EXPECT_OK(same.status());
  EXPECT(same->route == "r" && same->sender == "client" && same->address == "10.0.0.7");
  EXPECT(same->head == "head" && same->payloads.size() == 2 && same->gone == input.gone);
  EXPECT(*same->payloads[0] == "one" && same->payloads[1]->empty());
  for (size_t size = 0; size < record.size(); ++size) EXPECT(!InputOf(std::string_view(record).substr(0, size)).ok());
  EXPECT(!InputOf(record + "x").ok());
}

}  // namespace
}  // namespace pathways::controller
