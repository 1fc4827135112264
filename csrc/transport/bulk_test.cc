// Bulk transfers: every size by both ways, the window, exhaustion, lost peers, broken descriptions.
#include "csrc/transport/bulk.h"

#include <cstring>
#include <thread>

#include "csrc/transport/bulk_test_support.h"
#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

TEST(AnAnswerBeforeTheEmissionReturnsEndsTheTransferToo) {
  Loop loop(Small("answered"));
  loop.answered_within = true;
  const std::string small = RandomBytes(100, 1), large = RandomBytes(10000, 2);
  Outcome one, other;
  loop.sender->Send("peer", false, 1, {small.data(), small.size()}, one.Done());
  loop.sender->Send("peer", true, 2, {large.data(), large.size()}, other.Done());
  loop.RunToEnd();
  EXPECT(loop.overs == (std::vector<bool>{true, false, false, true}));
  EXPECT(loop.received[1] == small && loop.received[2] == large);
  EXPECT_EQ(one.calls + other.calls, 2);
}

TEST(EverySizeArrivesBothWays) {
  for (bool same_machine : {true, false}) {
    Loop loop(Small("sizes"));
    std::vector<std::string> sources;
    std::vector<Outcome> outcomes(40);
    std::minstd_rand random(3);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const size_t fixed[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, 8192, 100000};
      sources.push_back(RandomBytes(i < std::size(fixed) ? fixed[i] : random() % 50000, i));
    }
    for (size_t i = 0; i < outcomes.size(); ++i) {
      loop.sender->Send("peer", same_machine, i, {sources[i].data(), sources[i].size()}, outcomes[i].Done());
    }
    loop.RunToEnd();
    EXPECT_EQ(loop.complete, static_cast<int>(outcomes.size()));
    for (size_t i = 0; i < outcomes.size(); ++i) {
      EXPECT(loop.received[i] == sources[i]);
      EXPECT_EQ(outcomes[i].calls, 1);
      EXPECT_OK(outcomes[i].status);
    }
    EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
    EXPECT_EQ(loop.sender->transfers(), 0);
    EXPECT_EQ(loop.sender->pool().chunks_in_use(), 0);
    EXPECT_EQ(loop.sender->pool().bytes_allocated() > 0, same_machine);
  }
}

TEST(SmallTransfersLeaveAtOnce) {
  Loop loop(Small("inline"));
  Outcome outcome;
  {
    const std::string gone_after_send = RandomBytes(512, 1);
    loop.sender->Send("peer", true, 7, {gone_after_send.data(), gone_after_send.size()}, outcome.Done());
    EXPECT_EQ(outcome.calls, 1);
  }
  EXPECT(!loop.scheduled.load());
  EXPECT_EQ(loop.pieces.size(), 1);
  EXPECT(loop.pieces[0].piece.segment.empty());
  loop.RunToEnd();
  EXPECT(loop.received[7] == RandomBytes(512, 1));
}

TEST(WindowsBoundWhatIsInFlight) {
  Loop loop(Small("window"));
  const std::string source = RandomBytes(100 * 4096, 1);
  std::vector<Outcome> outcomes(5);
  loop.sender->Send("peer", true, 0, {source.data(), source.size()}, outcomes[0].Done());
  loop.Pump();
  EXPECT_EQ(loop.sender->pieces_in_flight(), 3);  // window_per_transfer
  for (size_t i = 1; i < outcomes.size(); ++i) {
    loop.sender->Send("peer", true, i, {source.data(), source.size()}, outcomes[i].Done());
  }
  loop.Pump();
  EXPECT_EQ(loop.sender->pieces_in_flight(), 8);  // window_per_peer
  EXPECT_EQ(loop.pieces.size(), 8);
  loop.keep_leases = true;
  while (!loop.pieces.empty()) loop.DeliverPiece();
  EXPECT(loop.releases.empty());  // nothing is released while the sink holds it
  loop.leases[0].Drop();
  EXPECT_EQ(loop.releases.size(), 1);
  loop.leases[0].Drop();
  EXPECT_EQ(loop.releases.size(), 1);
  loop.DeliverRelease();
  loop.Pump();
  EXPECT_EQ(loop.sender->pieces_in_flight(), 8);
  EXPECT_EQ(loop.pieces.size(), 1);
  size_t most = 0;
  loop.keep_leases = false;
  loop.leases.clear();
  while (!loop.pieces.empty() || !loop.releases.empty() || loop.scheduled.load()) {
    loop.Pump();
    most = std::max(most, loop.sender->pieces_in_flight());
    if (!loop.pieces.empty()) loop.DeliverPiece();
    if (!loop.releases.empty()) loop.DeliverRelease();
  }
  EXPECT_EQ(most, 8);
  EXPECT_EQ(loop.complete, 5);
  for (size_t i = 0; i < outcomes.size(); ++i) EXPECT(loop.received[i] == source);
}

TEST(BytesInSharedMemoryHaveAWindow) {
  BulkSenderOptions options = Small("bytes");
  options.shared_bytes_per_peer = 3 * 4096;
  Loop loop(options);
  const std::string large = RandomBytes(8 * 4096, 1), small = RandomBytes(512, 2);
  std::vector<Outcome> outcomes(4);
  for (size_t i = 0; i < 3; ++i) loop.sender->Send("peer", true, i, {large.data(), large.size()}, outcomes[i].Done());
  loop.Pump();
  EXPECT_EQ(loop.sender->pieces_in_flight(), 3);
  loop.sender->Send("peer", true, 3, {small.data(), small.size()}, outcomes[3].Done());
  EXPECT_EQ(loop.pieces.size(), 4);  // what goes in a frame does not wait for it
  size_t most = 0;
  while (!loop.pieces.empty() || !loop.releases.empty() || loop.scheduled.load()) {
    loop.Pump();
    most = std::max(most, loop.sender->pieces_in_flight());
    if (!loop.pieces.empty()) loop.DeliverPiece();
    if (!loop.releases.empty()) loop.DeliverRelease();
  }
  EXPECT(most <= 4);
  EXPECT_EQ(loop.complete, 4);
  for (size_t i = 0; i < 3; ++i) EXPECT(loop.received[i] == large);
  EXPECT(loop.received[3] == small);
}

TEST(PumpStopsAtItsBudgetAndAsksAgain) {
  BulkSenderOptions options = Small("budget");
  options.window_per_transfer = options.window_per_peer = 100;
  Loop loop(options);
  const std::string source = RandomBytes(10 * 4096, 1);
  Outcome outcome;
  loop.sender->Send("peer", true, 0, {source.data(), source.size()}, outcome.Done());
  EXPECT(loop.scheduled.exchange(false));
  loop.sender->Pump(2 * 4096);
  EXPECT_EQ(loop.pieces.size(), 2);
  EXPECT(loop.scheduled.load());
  loop.RunToEnd();
  EXPECT(loop.received[0] == source);
}

TEST(ExhaustedPoolWaitsForReleases) {
  BulkSenderOptions options = Small("exhausted");
  options.pool.total_bytes = 2 * 4096;
  Loop loop(options);
  const std::string source = RandomBytes(30000, 2);
  std::vector<Outcome> outcomes(3);
  for (size_t i = 0; i < 3; ++i) loop.sender->Send("peer", true, i, {source.data(), source.size()}, outcomes[i].Done());
  loop.Pump();
  EXPECT_EQ(loop.pieces.size(), 3);  // two chunks, and a frame, as the peer has fewer than window_per_transfer
  EXPECT(!loop.scheduled.load());    // it waits, it does not spin
  loop.RunToEnd();
  EXPECT_EQ(loop.complete, 3);
  for (size_t i = 0; i < 3; ++i) EXPECT(loop.received[i] == source);
}

TEST(NoSharedMemoryFallsBackToFrames) {
  BulkSenderOptions options = Small("fallback");
  options.pool.total_bytes = 0;
  Loop loop(options);
  const std::string source = RandomBytes(30000, 2);
  Outcome outcome;
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, outcome.Done());
  loop.Pump();
  ASSERT(!loop.pieces.empty());
  EXPECT(loop.pieces[0].piece.segment.empty());
  EXPECT_EQ(outcome.calls, 0);  // the frames borrow the source
  loop.RunToEnd();
  EXPECT(loop.received[1] == source);
  EXPECT_EQ(outcome.calls, 1);
}

TEST(LostPeerEndsItsTransfersOnly) {
  Loop loop(Small("lost"));
  const std::string source = RandomBytes(20 * 4096, 1);
  Outcome lost_shared, lost_framed, queued, other;
  loop.sender->Send("lost", true, 1, {source.data(), source.size()}, lost_shared.Done());
  loop.sender->Send("lost", false, 2, {source.data(), source.size()}, lost_framed.Done());
  loop.Pump();
  loop.sender->Send("lost", true, 3, {source.data(), source.size()}, queued.Done());
  loop.sender->Send("other", true, 4, {source.data(), source.size()}, other.Done());
  loop.sender->PeerLost("lost", Unavailable("host b is gone"));
  EXPECT_EQ(lost_shared.calls, 1);
  EXPECT_EQ(lost_shared.status.code(), Code::kUnavailable);
  EXPECT_EQ(queued.calls, 1);
  EXPECT_EQ(lost_framed.calls, 0);  // its frames still read the source
  EXPECT_EQ(loop.sender->pool().chunks_in_use(), 0);
  EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
  const BulkPiece late = loop.pieces[0].piece;
  loop.pieces.clear();  // libzmq drops what it had queued for the peer
  loop.Pump();
  EXPECT_EQ(lost_framed.calls, 1);
  EXPECT_EQ(lost_framed.status.code(), Code::kUnavailable);
  EXPECT_EQ(loop.sender->OnRelease("lost", {late.key, late.ticket, {}}).status().code(), Code::kInvalidArgument);
  loop.RunToEnd();
  EXPECT(loop.received[4] == source);
  EXPECT_OK(other.status);
  EXPECT_EQ(other.calls, 1);
}

TEST(APeerThatTakesNothingHoldsUpNobodyElse) {
  Loop loop(Small("silent"));
  const std::string source = RandomBytes(5 * 4096, 1);
  std::vector<Outcome> outcomes(21);
  for (size_t i = 0; i < 20; ++i) {
    loop.sender->Send("silent", true, i, {source.data(), source.size()}, outcomes[i].Done());
  }
  loop.Pump();
  EXPECT_EQ(loop.sender->pieces_in_flight(), 8);  // window_per_peer
  std::deque<Loop::Sent> kept = std::exchange(loop.pieces, {});
  loop.sender->Send("other", true, 20, {source.data(), source.size()}, outcomes[20].Done());
  loop.RunToEnd();
  EXPECT(loop.received[20] == source);
  EXPECT_EQ(loop.sender->pieces_in_flight(), 8);
  loop.pieces = std::move(kept);  // and it goes on where it stopped
  loop.RunToEnd();
  for (size_t i = 0; i < 20; ++i) EXPECT(loop.received[i] == source);
  EXPECT_EQ(loop.sender->transfers(), 0);
}

TEST(PeersTakeTurnsWhateverTheNumberOfTheirTransfers) {
  BulkSenderOptions options = Small("turns");
  options.window_per_peer = 100;
  Loop loop(options);
  const std::string source = RandomBytes(2 * 4096, 1);
  std::vector<Outcome> outcomes(31);
  for (size_t i = 0; i < 30; ++i) {
    loop.sender->Send("floods", false, i, {source.data(), source.size()}, outcomes[i].Done());
  }
  loop.sender->Send("asks once", false, 30, {source.data(), source.size()}, outcomes[30].Done());
  loop.Pump();
  size_t turn = 0;
  while (turn < loop.pieces.size() && loop.pieces[turn].piece.key != 30) ++turn;
  EXPECT(turn < 2);
  EXPECT_EQ(loop.pieces.at(turn + 2).piece.key, 30u);  // the second of its two pieces
  loop.RunToEnd();
  EXPECT_EQ(loop.complete, 31);
}

TEST(WhoKeepsAllSharedMemoryHoldsUpNobodyElse) {
  BulkSenderOptions options = Small("hoards");
  options.pool.total_bytes = 4 * 4096;
  Loop loop(options);
  const std::string source = RandomBytes(9 * 4096, 1);
  std::vector<Outcome> outcomes(5);
  for (size_t i = 0; i < 4; ++i) {
    loop.sender->Send("hoards", true, i, {source.data(), source.size()}, outcomes[i].Done());
  }
  loop.Pump();
  EXPECT_EQ(loop.sender->pool().chunks_in_use(), 4);
  std::deque<Loop::Sent> kept = std::exchange(loop.pieces, {});
  loop.sender->Send("other", true, 4, {source.data(), source.size()}, outcomes[4].Done());
  loop.RunToEnd();
  EXPECT(loop.received[4] == source);
  loop.pieces = std::move(kept);  // and it goes on where it stopped
  loop.RunToEnd();
  for (size_t i = 0; i < 4; ++i) EXPECT(loop.received[i] == source);
  EXPECT_EQ(loop.sender->pool().chunks_in_use(), 0);
}

TEST(AReleaseTellsWhatItMeantToItsTransfer) {
  Loop loop(Small("progress"));
  const std::string source = RandomBytes(5 * 4096, 1);
  Outcome whole, refused;
  loop.sender->Send("peer", true, 1, {source.data(), 2 * 4096}, whole.Done());
  loop.sender->Send("peer", true, 2, {source.data(), 5 * 4096}, refused.Done());
  loop.Pump();
  std::vector<BulkPiece> pieces[3];
  for (const Loop::Sent& sent : loop.pieces) pieces[sent.piece.key].push_back(sent.piece);
  ASSERT(pieces[1].size() == 2 && pieces[2].size() == 3);
  const auto release = [&](const BulkPiece& piece, Status status) {
    Result<BulkProgress> progress = loop.sender->OnRelease("peer", {piece.key, piece.ticket, std::move(status)});
    EXPECT_OK(progress.status());
    return *progress;
  };
  EXPECT(!release(pieces[1][0], OkStatus()).over);
  const BulkProgress last = release(pieces[1][1], ResourceExhausted("no room"));
  EXPECT(last.over && !last.cut_short);  // all of it was sent, so there is nothing to take back
  EXPECT_EQ(last.bytes, 4096);
  const BulkProgress cut = release(pieces[2][0], ResourceExhausted("no room"));
  EXPECT(!cut.over && cut.cut_short);
  EXPECT(!release(pieces[2][1], ResourceExhausted("no room")).cut_short);  // once
  EXPECT(release(pieces[2][2], ResourceExhausted("no room")).over);
}

TEST(CancelAndRefusalEndOneTransfer) {
  Loop loop(Small("cancel"));
  const std::string source = RandomBytes(20 * 4096, 1);
  Outcome cancelled, refused, unsent;
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, cancelled.Done());
  loop.sender->Send("peer", true, 2, {source.data(), source.size()}, refused.Done());
  loop.Pump();
  loop.sender->Cancel("peer", 1, Cancelled("no longer needed"));
  EXPECT_EQ(cancelled.calls, 1);
  const BulkPiece piece = loop.pieces.back().piece;
  EXPECT_EQ(piece.key, 2);
  EXPECT_EQ(loop.sender->OnRelease("somebody", {2, piece.ticket, {}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(loop.sender->OnRelease("peer", {1, piece.ticket, {}}).status().code(), Code::kInvalidArgument);
  EXPECT_OK(loop.sender->OnRelease("peer", {2, piece.ticket, ResourceExhausted("no room")}).status());
  EXPECT_EQ(loop.sender->OnRelease("peer", {2, piece.ticket, {}}).status().code(), Code::kInvalidArgument);  // twice
  EXPECT_EQ(refused.calls, 1);
  EXPECT_EQ(refused.status.code(), Code::kResourceExhausted);
  loop.pieces.pop_back();
  loop.emit_status = NotFound("no such peer");
  loop.sender->Send("peer", true, 3, {source.data(), source.size()}, unsent.Done());
  loop.Pump();
  EXPECT_EQ(unsent.status.code(), Code::kNotFound);
  loop.emit_status = OkStatus();
  loop.RunToEnd();
  EXPECT_EQ(loop.complete, 0);
  EXPECT_EQ(loop.sender->pool().chunks_in_use(), 0);
  EXPECT_EQ(loop.sender->pieces_in_flight(), 0);
}

TEST(ShutdownFailsWhatIsLeft) {
  Loop loop(Small("shutdown"));
  const std::string source = RandomBytes(20 * 4096, 1);
  Outcome shared, framed;
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, shared.Done());
  loop.sender->Send("peer", false, 2, {source.data(), source.size()}, framed.Done());
  loop.Pump();
  std::thread socket_closes([&] { loop.pieces.clear(); });
  loop.sender.reset();
  socket_closes.join();
  EXPECT_EQ(shared.calls, 1);
  EXPECT_EQ(shared.status.code(), Code::kCancelled);
  EXPECT_EQ(framed.calls, 1);
  EXPECT_EQ(framed.status.code(), Code::kCancelled);
}

TEST(BrokenDescriptionsAreRefusedAndReturned) {
  Outcome outcome;  // told by the end of the sender, so it outlives the loop
  Loop loop(Small("broken"));
  const auto refuse = [&](BulkPiece piece, Frame payload) {
    const size_t before = loop.releases.size();
    EXPECT_EQ(loop.receiver.OnPiece("peer", piece, std::move(payload)).code(), Code::kInvalidArgument);
    EXPECT_EQ(loop.releases.size(), before + 1);
    EXPECT(!loop.releases.back().release.status.ok());
    EXPECT_EQ(loop.releases.back().release.ticket, piece.ticket);
  };
  refuse({1, 10, 0, 5, 4, "", 0}, Frame("12345"));                 // larger than its transfer
  refuse({1, 11, 2, 3, 4, "", 0}, Frame("123"));                   // beyond its end
  refuse({1, 12, UINT64_MAX, 2, UINT64_MAX, "", 0}, Frame("12"));  // wraps around
  refuse({1, 13, 0, 0, 4, "", 0}, Frame());                        // empty, of a transfer that is not
  refuse({1, 14, 0, 4, 4, "", 0}, Frame("123"));                   // frame too short
  refuse({1, 15, 0, 4, 4, "/etc/passwd", 0}, Frame());
  refuse({1, 16, 0, 4, 4, "/ptpathways-other-1-1", 0}, Frame());
  const std::string source = RandomBytes(5000, 1);
  loop.sender->Send("peer", true, 1, {source.data(), source.size()}, outcome.Done());
  loop.Pump();
  BulkPiece beyond = loop.pieces[0].piece;
  beyond.segment_offset = 16384 - 100;
  refuse(beyond, Frame());
  EXPECT_EQ(loop.complete, 0);
}

// Over real sockets, with releases from another thread than the one that receives: both processes' parts in one, many
// transfers from several threads, random sizes, half of them through shared memory.
TEST(ManyTransfersOverSockets) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  ASSERT_OK_AND_ASSIGN(auto router, Socket::Open({.kind = SocketKind::kRouter}));
  ASSERT_OK_AND_ASSIGN(auto dealer, Socket::Open({.kind = SocketKind::kDealer, .identity = "d"}));
  ASSERT_OK_AND_ASSIGN(auto send_reactor, Reactor::Start({.name = "send"}));
  ASSERT_OK_AND_ASSIGN(auto receive_reactor, Reactor::Start({.name = "receive"}));
  ASSERT_OK_AND_ASSIGN(auto release_reactor, Reactor::Start({.name = "release"}));

  struct Emitter : BulkEmitter {
    Socket* socket;
    Status EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) override {
      Frames frames;
      const uint64_t numbers[] = {piece.key, piece.ticket, piece.offset, piece.size, piece.total, piece.segment_offset};
      frames.emplace_back(std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers)));
      frames.emplace_back(piece.segment);
      frames.push_back(std::move(payload));
      return socket->Send(peer, std::move(frames));
    }
    Status EmitRelease(std::string_view peer, const BulkRelease& release) override {
      const uint64_t numbers[] = {release.key, release.ticket};
      return socket->Send(peer, Frame(std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers))));
    }
  } from_router, from_dealer;
  from_router.socket = router.get();
  from_dealer.socket = dealer.get();

  constexpr uint64_t kTransfers = 300;
  std::vector<std::string> sources(kTransfers), arrived(kTransfers);
  std::minstd_rand random(11);
  for (uint64_t i = 0; i < kTransfers; ++i) {
    sources[i] = RandomBytes(i % 3 == 0 ? random() % 700 : random() % 200000, i);
    arrived[i].resize(sources[i].size());
  }
  Counter complete, done;
  struct Sink : BulkSink {
    std::vector<std::string>* arrived;
    Counter* complete;
    Reactor* release;
    void OnBulk(std::string_view, const BulkPiece& piece, std::span<const std::byte> bytes, BulkLease lease) override {
      if (piece.total != (*arrived)[piece.key].size()) {
        EXPECT_EQ(piece.total, (*arrived)[piece.key].size());
        return;
      }
      // As an asynchronous device copy would: the bytes are read, and the lease dropped, elsewhere.
      auto held = std::make_shared<BulkLease>(std::move(lease));
      release->Post([this, piece, bytes, held] {
        if (!bytes.empty()) std::memcpy((*arrived)[piece.key].data() + piece.offset, bytes.data(), bytes.size());
        if (piece.last()) complete->Add();
      });
    }
  } sink;
  sink.arrived = &arrived;
  sink.complete = &complete;
  sink.release = release_reactor.get();

  BulkSenderOptions options = Small("sockets");
  options.pool.chunk_bytes = 16384;
  options.pool.segment_bytes = options.pool.total_bytes = 6 * 16384;  // fewer chunks than the window: it runs dry
  options.window_per_peer = 12;
  std::unique_ptr<BulkSender> sender;
  sender =
      std::make_unique<BulkSender>(options, &from_router, [&] { send_reactor->Post([&] { sender->Pump(64 << 10); }); });
  BulkReceiver receiver(options.pool.cluster, &from_dealer, &sink);
  Counter hello;
  Handler at_router([&](Socket&, std::string_view peer, Frames& frames) {
    if (frames[0].size() != 16) return hello.Add();
    uint64_t numbers[2];
    std::memcpy(numbers, frames[0].data(), sizeof(numbers));
    EXPECT_OK(sender->OnRelease(peer, {numbers[0], numbers[1], {}}).status());
  });
  Handler at_dealer([&](Socket&, std::string_view peer, Frames& frames) {
    EXPECT_EQ(peer, "");
    uint64_t n[6];
    std::memcpy(n, frames[0].data(), sizeof(n));
    EXPECT_OK(receiver.OnPiece(peer, {n[0], n[1], n[2], n[3], n[4], std::string(frames[1].bytes()), n[5]},
                               std::move(frames[2])));
  });
  ASSERT_OK(receive_reactor->Add(router, &at_router));
  ASSERT_OK(receive_reactor->Add(dealer, &at_dealer));
  ASSERT_OK_AND_ASSIGN(std::string bound, router->Bind(directory.Ipc("bulk")));
  ASSERT_OK(dealer->Connect(bound));
  ASSERT_OK(dealer->Send("", Frame("hello")));
  ASSERT(hello.WaitFor(1));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t; i < kTransfers; i += 3) {
        sender->Send("d", i % 2 == 0, i, {sources[i].data(), sources[i].size()}, [&](const Status& status) {
          EXPECT_OK(status);
          done.Add();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(complete.WaitFor(kTransfers));
  EXPECT(done.WaitFor(kTransfers));
  EXPECT_EQ(done.value(), kTransfers);
  int wrong = 0;
  for (uint64_t i = 0; i < kTransfers; ++i) wrong += arrived[i] == sources[i] ? 0 : 1;
  EXPECT_EQ(wrong, 0);
  router->Close();
  dealer->Close();
  send_reactor->Stop();
  receive_reactor->Stop();
  release_reactor->Stop();
}

}  // namespace
}  // namespace pathways::transport::testing
