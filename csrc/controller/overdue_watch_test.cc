// Hosts that finish nothing: who is told of, when, and what the status says.
#include "csrc/controller/overdue_watch.h"

#include "csrc/controller/test_support.h"

namespace pathways::controller {
namespace {

scheduler::Unfinished StillFor(uint64_t still_ms) {
  scheduler::Unfinished what;
  what.still_ms = still_ms;
  return what;
}

TEST(AHostIsOverdueAfterTheLimitAndTenTimesWhatIsUsual) {
  const OverdueWatch watch(30'000);
  EXPECT(!watch.IsOverdue(0, StillFor(29'999), 0, 100'000));
  EXPECT(watch.IsOverdue(0, StillFor(30'000), 0, 100'000));
  EXPECT(watch.IsOverdue(0, StillFor(30'000), 3e6, 100'000));  // usually 3 s
  EXPECT(!watch.IsOverdue(0, StillFor(39'999), 4e6, 100'000));
  EXPECT(!OverdueWatch(0).IsOverdue(0, StillFor(90'000), 0, 100'000));  // never
}

TEST(TimeInWhichNothingCouldBeHeardDoesNotCount) {
  OverdueWatch watch(30'000);
  watch.Resumed(1, 95'000);
  EXPECT(!watch.IsOverdue(1, StillFor(90'000), 0, 100'000));
  EXPECT(watch.IsOverdue(0, StillFor(90'000), 0, 100'000));
  EXPECT(watch.IsOverdue(1, StillFor(120'000), 0, 125'000));
  watch.AllResumed(126'000);
  EXPECT(!watch.IsOverdue(0, StillFor(120'000), 0, 130'000));
}

TEST(EachChangeIsToldOnce) {
  OverdueWatch watch(1000);
  const std::map<uint32_t, scheduler::Unfinished> one = {{2, StillFor(1500)}};
  std::vector<OverdueWatch::Change> changes = watch.Look(one, 10'000);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].host, 2u);
  EXPECT_EQ(changes[0].over_ms, 0u);
  EXPECT(watch.Look(one, 10'500).empty());
  changes = watch.Look({}, 12'000);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].over_ms, 3500u);  // since something had last ended
  EXPECT(watch.Look({}, 12'500).empty());
  EXPECT_EQ(watch.Look(one, 20'000).size(), 1u);
  watch.Forget(2);
  EXPECT(watch.Look({}, 21'000).empty());  // its loss says enough
}

// A cluster with a host of two devices, a client and its function; time passes in heartbeats.
struct Hanging : Cluster {
  Hanging() {
    AddHost("h0", 2);
    client = AddClient("a");
    Register("a", client, 1, 0);
    Registered("h0", client, 1);
    Register("a", client, 2, 1);
    Registered("h0", client, 2);
    state.TakeLog();
  }
  // What the log says until then, one line each.
  std::string PassUntil(uint64_t until, bool host_speaks = true) {
    std::string said;
    for (now += 500; now <= until; now += 500) {
      Tell("a", wire::Heartbeat{});
      if (host_speaks) Tell("w-h0", wire::Heartbeat{});
      Outputs ignored;
      state.OnTick(now, ignored);
      for (const auto& [who, line] : state.TakeLog()) said += line + "\n";
    }
    now -= 500;
    return said;
  }
  uint32_t client = 0;
};

TEST(TheLogTellsOfAHostWhoseDeviceHangsAndWhenItGoesOn) {
  Hanging c;
  c.Run("a", c.client, 10, 1);
  c.Run("a", c.client, 20, 1);
  EXPECT_EQ(c.PassUntil(30'500), "");
  // Its other device goes on, which is no sign of life of this one.
  c.Run("a", c.client, 30, 2, {1});
  c.Done("h0", {Cluster::Id(c.client, 30)}, 500);
  const std::string said = c.PassUntil(40'000);
  EXPECT_HAS(said, "host 'h0' (host 0, pid 0) has finished nothing on device 0 for 30 s, with 2 computations to do");
  EXPECT_HAS(
      said,
      "the first is function 'f' of client 'a' (client 1, pid 0), sent 30 s ago; the worker's engine takes messages");
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  const std::string status = c.state.StatusJson(c.now);
  EXPECT_HAS(status,
             "\"unfinished\": {\"device\": 0, \"computations\": 2, \"still_ms\": 39000, \"first\": \"function 'f'\"");
  EXPECT_HAS(status, "\"client\": \"a\", \"sent_ms\": 39000, \"engine_still_ms\": 0, \"overdue\": true}");
  c.Done("h0", {Cluster::Id(c.client, 10)}, 39'000'000);
  EXPECT_HAS(c.PassUntil(41'000), "host 'h0' (host 0, pid 0) has finished something on device 0 again, after 39 s");
  EXPECT_HAS(c.state.StatusJson(c.now), "\"overdue\": false}");
  // It is known by now that this computation is one that takes long.
  EXPECT_EQ(c.PassUntil(100'000), "");
  c.Done("h0", {Cluster::Id(c.client, 20)}, 39'000'000);
  EXPECT_HAS(c.state.StatusJson(c.now), "\"unfinished\": null");
}

TEST(TheEngineThatHangsIsNamed) {
  Hanging c;
  c.Run("a", c.client, 10, 1);
  EXPECT_EQ(c.PassUntil(30'500), "");
  wire::Heartbeat beat;
  beat.engine_still_ms = 30'100;
  c.Tell("w-h0", beat);
  EXPECT_HAS(c.PassUntil(31'000, false), "the worker's engine has neither taken a message nor computed for 30 s");
  EXPECT_HAS(c.state.StatusJson(c.now), "\"engine_still_ms\": 30100");
}

TEST(AHostThatIsSilentOrLostIsToldOfAsSuch) {
  Hanging c;
  c.Run("a", c.client, 10, 1);
  const std::string said = c.PassUntil(50'000, false);
  EXPECT_HAS(said, "nothing was heard of host 'h0'");
  EXPECT(said.find("has finished nothing") == std::string::npos);
  EXPECT_HAS(c.state.StatusJson(c.now), "\"alive\": true, \"silent\": true");
  EXPECT_EQ(c.PassUntil(60'000), "host 'h0' is heard of again\n");
  EXPECT_HAS(c.PassUntil(90'000), "has finished nothing on device 0");
  c.out.clear();
  c.state.OnDisconnected("w-h0", "killed", c.out);
  EXPECT_HAS(c.PassUntil(95'000), "is lost: killed");
  EXPECT_EQ(c.PassUntil(99'000), "");
  EXPECT_HAS(c.state.StatusJson(c.now), "\"unfinished\": null");
}

}  // namespace
}  // namespace pathways::controller
