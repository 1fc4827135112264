// Two data planes over real sockets: connections that are cut, peers that are gone, refuse, or say nothing.
#include "csrc/dataplane/data_plane.h"

#include <cstring>
#include <map>
#include <optional>

#include "csrc/dataplane/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::dataplane {
namespace {

using std::chrono::milliseconds;
using testing::Proxy;

class Sink : public testing::NotingSink {
 public:
  void OnBytes(std::string_view, uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
               transport::BulkLease lease) override {
    Note([&] {
      if (refuse) return lease.Drop(ResourceExhausted("no room"));
      std::string& value = received[key];
      EXPECT_EQ(value.size(), offset);  // nothing twice, nothing missing
      value.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (value.size() == total) ++complete;
      if (keep) leases.push_back(std::move(lease));
    });
  }
  void OnTransferFailed(std::string_view, uint64_t key, const Status& status) override {
    Note([&] { failed[key] = status; });
  }
  void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) override {
    Note([&] { send_failed[key] = status.WithPrefix(peer); });
  }

  std::map<uint64_t, std::string> received;
  std::map<uint64_t, Status> failed, send_failed;
  std::vector<transport::BulkLease> leases;
  int complete = 0;
  bool refuse = false, keep = false;
};

struct Plane {
  // A host of a cluster.
  Plane(const wire::Identity& identity, std::string key)
      : Plane(testing::OptionsOf(identity.name, {testing::kCluster, "", std::move(key), identity.session}, true)) {}
  explicit Plane(const std::string& identity, bool binds, milliseconds transfer_timeout = milliseconds(60'000))
      : Plane([&] {
          DataPlaneOptions options = testing::OptionsOf(identity, {testing::kCluster, identity, "", 0}, binds);
          options.transfer_timeout = transfer_timeout;
          options.connection_timeout = milliseconds(400);
          return options;
        }()) {}
  ~Plane() { data->Stop(); }
  // Sends and keeps the outcome.
  void Send(const std::string& peer, uint64_t key, const std::string& bytes) {
    data->Send(peer, key, {bytes.data(), bytes.size()},
               [this, key](const Status& status) { sink.Note([&] { done[key] = status; }); });
  }
  bool WaitDone(uint64_t key) {
    return sink.Wait([&] { return done.contains(key); });
  }
  Sink sink;
  std::map<uint64_t, Status> done;  // guarded by the sink's lock
  std::unique_ptr<DataPlane> data;

 private:
  explicit Plane(const DataPlaneOptions& options) {
    auto started = DataPlane::Start(options, &sink);
    EXPECT_OK(started.status());
    data = *std::move(started);
  }
};

std::string Bytes(size_t size, unsigned seed) {
  std::minstd_rand random(seed + 1);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += 4) {
    const uint32_t word = static_cast<uint32_t>(random());
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(4, size - i));
  }
  return bytes;
}

constexpr size_t kMiB = size_t{1} << 20;

TEST(TransfersBothWaysOutliveResetsOfTheirConnection) {
  Plane host("w/h", true), client("c/0", false);
  Proxy proxy(host.data->endpoint());
  EXPECT_OK(client.data->ConnectTo("h", proxy.endpoint(), ""));
  const std::string up = Bytes(20 * kMiB, 1), down = Bytes(20 * kMiB, 2), small = Bytes(100, 3);
  client.Send("to/h", 100, small);
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1; }));
  for (int round = 1; round <= 5; ++round) {
    proxy.ResetAfter(static_cast<int64_t>(3 * kMiB) * round);
    const uint64_t key = static_cast<uint64_t>(round);
    client.Send("to/h", key, up);
    host.Send("c/0", key, down);
    for (uint64_t i = 0; i < 20; ++i) client.Send("to/h", 1000 * key + i, small);
    EXPECT(host.sink.Wait([&] { return host.sink.received[key].size() == up.size(); }));
    EXPECT(client.sink.Wait([&] { return client.sink.received[key].size() == down.size(); }));
    EXPECT(client.WaitDone(key) && host.WaitDone(key));
    EXPECT_OK(client.done[key]);
    EXPECT_OK(host.done[key]);
    EXPECT(host.sink.received[key] == up);
    EXPECT(client.sink.received[key] == down);
    proxy.Reset();
  }
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1 + 5 + 100; }));
  EXPECT(proxy.resets() >= 3);
}

TEST(ABlackholedConnectionIsNoticedAndMadeAnew) {
  Plane host("w/h", true), client("c/0", false);
  Proxy proxy(host.data->endpoint());
  EXPECT_OK(client.data->ConnectTo("h", proxy.endpoint(), ""));
  const std::string up = Bytes(8 * kMiB, 1), first = Bytes(100, 3);
  client.Send("to/h", 1, first);
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1; }));
  proxy.SwallowPresent();  // for ever
  client.Send("to/h", 2, up);
  host.Send("c/0", 3, up);
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 2; }));
  EXPECT(client.sink.Wait([&] { return client.sink.complete == 1; }));
  EXPECT(host.sink.received[2] == up && client.sink.received[3] == up);
  EXPECT(client.WaitDone(2) && host.WaitDone(3));  // until then their memory is read
}

TEST(ATransferToASilentPeerFailsInTimeAndLetsItsMemoryGo) {
  Plane host("w/h", true), client("c/0", false, milliseconds(800));
  Proxy proxy(host.data->endpoint());
  proxy.Swallow(true);
  EXPECT_OK(client.data->ConnectTo("h", proxy.endpoint(), ""));
  const std::string up = Bytes(8 * kMiB, 1);
  client.Send("to/h", 2, up);
  EXPECT(client.sink.Wait([&] { return client.sink.send_failed.contains(2); }));
  for (const char* part : {"to/h", "8388608 bytes", "got word of 0 of them", "limit 0.8 s"}) {
    EXPECT_HAS(client.sink.send_failed[2].message(), part);
  }
  EXPECT_EQ(client.data->transfers(TransferState::kFailed), 1);
  EXPECT_EQ(client.data->transfers(TransferState::kOpen), 0);
  // When the way is free again the receiver hears of it, and what comes after arrives.
  proxy.Swallow(false);
  proxy.Reset();
  const std::string next = Bytes(2 * kMiB, 2);
  client.Send("to/h", 3, next);
  EXPECT(host.sink.Wait([&] { return host.sink.received[3].size() == next.size() && host.sink.failed.contains(2); }));
  EXPECT(host.sink.received[3] == next);
  EXPECT_EQ(host.sink.failed[2].code(), Code::kDeadlineExceeded);
  EXPECT(client.WaitDone(2));
}

TEST(WhatWaitsForACallerThatNeverComesFailsInTime) {
  Plane host("w/h", true, milliseconds(200));
  const std::string bytes = Bytes(100, 1);
  host.Send("c/7", 5, bytes);
  EXPECT(host.WaitDone(5));
  EXPECT_EQ(host.done[5].code(), Code::kDeadlineExceeded);
  EXPECT(host.sink.Wait([&] { return host.sink.send_failed.contains(5); }));
}

TEST(SendsToAPeerThatIsGoneFailAtOnce) {
  Plane host("w/h", true), client("c/0", false);
  EXPECT_OK(client.data->ConnectTo("h", host.data->endpoint(), ""));
  const std::string bytes = Bytes(100, 1);
  client.Send("to/h", 1, bytes);
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1; }));
  host.data->PeerLost("c/0", Cancelled("client 1 is gone"));
  host.Send("c/0", 2, bytes);
  ASSERT(host.done.contains(2));  // before Send returned
  EXPECT_HAS(host.done[2].message(), "client 1 is gone");
  host.data->SendFailure("c/0", 3, Cancelled("x"));
  // It does not come back by its connection, either.
  client.Send("to/h", 4, bytes);
  client.data->PeerLost("to/h", Unavailable("host h is lost"));
  client.Send("to/h", 5, bytes);
  ASSERT(client.done.contains(5));
  EXPECT_EQ(client.done[5].code(), Code::kUnavailable);
  EXPECT_EQ(host.data->transfers(TransferState::kOpen), 0);
}

TEST(RefusedTransfersEndAndHoldUpNothing) {
  Plane host("w/h", true), client("c/0", false);
  EXPECT_OK(client.data->ConnectTo("h", host.data->endpoint(), ""));
  const std::string large = Bytes(40 * kMiB, 1);
  host.sink.Note([&] { host.sink.refuse = true; });
  for (uint64_t key = 1; key <= 100; ++key) client.Send("to/h", key, large);
  for (uint64_t key = 1; key <= 100; ++key) {
    EXPECT(client.WaitDone(key));
    EXPECT_EQ(client.done[key].code(), Code::kResourceExhausted);
  }
  // The receiver is told of each that it will not get all of it.
  EXPECT(host.sink.Wait([&] { return host.sink.failed.size() == 100; }));
  host.sink.Note([&] { host.sink.refuse = false; });
  client.Send("to/h", 200, large);
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1; }));
  EXPECT(client.WaitDone(200));
  EXPECT_OK(client.done[200]);
  EXPECT_EQ(client.data->transfers(TransferState::kFailed), 100);
}

TEST(AProcessThatStartsAgainUnderTheSameNameIsAnother) {
  Plane host("w/h", true);
  const std::string bytes = Bytes(100, 1);
  for (uint64_t key = 1; key <= 3; ++key) {
    Plane client("c/0", false);
    EXPECT_OK(client.data->ConnectTo("h", host.data->endpoint(), ""));
    client.Send("to/h", key, bytes);
    EXPECT(host.sink.Wait([&] { return host.sink.received[key] == bytes; }));
    host.Send("c/0", key, bytes);
    EXPECT(client.sink.Wait([&] { return client.sink.received[key] == bytes; }));
  }
}

TEST(SendsWhileThePlaneStopsAllEnd) {
  for (int round = 0; round < 20; ++round) {
    Plane host("w/h", true), client("c/0", false);
    EXPECT_OK(client.data->ConnectTo("h", host.data->endpoint(), ""));
    const std::string small = Bytes(100, 1), large = Bytes(kMiB, 2);
    std::atomic<int> begun{0}, ended{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t key = 1; !stop && key < 1000; ++key) {
          ++begun;
          const std::string& bytes = key % 3 == 0 ? large : small;
          client.data->Send("to/h", key * 2 + static_cast<uint64_t>(t), {bytes.data(), bytes.size()},
                            [&](const Status&) { ++ended; });
        }
      });
    }
    while (begun < 20) std::this_thread::yield();
    client.data->Stop();
    stop = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(begun.load(), ended.load());
  }
}

TEST(TheTimeOfATransferIsSet) {
  EXPECT_EQ(TransferTimeoutOf(nullptr)->count(), 60'000);
  EXPECT_EQ(TransferTimeoutOf("2.5")->count(), 2'500);
  for (const char* bad : {"x", "0", "-1", "nan", "1e9", "5 s"}) {
    EXPECT_HAS(TransferTimeoutOf(bad).status().message(), "PTPATHWAYS_TRANSFER_TIMEOUT_S must be");
  }
}

constexpr const char* kSecret = "known to the controller only";

// Says hello by a name, and sends four bytes as if that were all right.
std::shared_ptr<transport::Socket> SendAs(const std::string& name, const Plane& host, uint64_t key) {
  transport::SocketOptions options;
  options.kind = transport::SocketKind::kDealer;
  options.identity = name;
  options.curve.insecure = true;
  auto socket = transport::Socket::Open(options);
  EXPECT_OK(socket.status());
  EXPECT_OK((*socket)->Connect(host.data->endpoint()));
  EXPECT_OK(
      (*socket)->Send({}, transport::Frame(wire::Encode(wire::PeerHello{testing::kCluster, "", key, 0, 0, 0, 0}))));
  EXPECT_OK((*socket)->Send({}, testing::DataMessage(key, 1, "lies")));
  return *socket;
}

TEST(AHostPlaysNoOtherHostWithWhatItKnowsAndHears) {
  const wire::Identity a{"w/a", 1}, b{"w/b", 2}, evil{"w/evil", 3};
  const std::string key_b = wire::ListenerKey(kSecret, b), key_evil = wire::ListenerKey(kSecret, evil);
  Plane plane_a(a, wire::ListenerKey(kSecret, a)), plane_b(b, key_b), plane_evil(evil, key_evil);
  EXPECT_HAS(plane_a.data->ConnectTo("b", plane_b.data->endpoint(), "").message(), "has given no name");
  plane_a.data->SetIdentityAt("b", wire::IdentityText(key_b, a));
  plane_a.data->SetIdentityAt("evil", wire::IdentityText(key_evil, a));
  EXPECT_OK(plane_a.data->ConnectTo("b", plane_b.data->endpoint(), ""));
  EXPECT_OK(plane_a.data->ConnectTo("evil", plane_evil.data->endpoint(), ""));
  const std::string bytes = Bytes(3 * kMiB, 1);
  plane_a.Send("to/b", 1, bytes);
  plane_a.Send("to/evil", 1, bytes);
  EXPECT(plane_a.WaitDone(1));
  EXPECT(plane_evil.sink.Wait([&] { return plane_evil.sink.complete == 1; }));
  // Made with its own key, and what `a` called itself there; that of a client, too.
  const auto made = SendAs(wire::IdentityText(key_evil, {"w/a", 1000}), plane_b, 77);
  const auto heard = SendAs(wire::IdentityText(key_evil, a), plane_b, 77);
  const auto client = SendAs(wire::IdentityText(key_evil, {"c/1", 4}), plane_b, 77);
  const auto own = SendAs(wire::IdentityText(key_b, evil), plane_b, 78);
  EXPECT(plane_b.sink.Wait([&] { return plane_b.sink.received.contains(78); }));
  for (uint64_t key = 2; key < 20; ++key) {
    plane_a.Send("to/b", key, bytes);
    EXPECT(plane_b.sink.Wait([&] { return plane_b.sink.received[key].size() == bytes.size(); }));
    EXPECT(plane_b.sink.received[key] == bytes);
  }
  EXPECT(!plane_b.sink.received.contains(77));
  for (const auto& socket : {made, heard, client, own}) socket->Close();
}

TEST(TheNameOfASessionThatIsOverIsNobodysAndALaterOneStays) {
  const wire::Identity former{"w/a", 1}, b{"w/b", 2}, later{"w/a", 3};
  const std::string key_b = wire::ListenerKey(kSecret, b);
  Plane plane_b(b, key_b), plane_a(later, wire::ListenerKey(kSecret, later));
  const auto first = SendAs(wire::IdentityText(key_b, former), plane_b, 70);
  EXPECT(plane_b.sink.Wait([&] { return plane_b.sink.received.contains(70); }));
  plane_b.data->PeerLost("w/a", Unavailable("host 'a' is lost"), former.session);
  first->Close();
  const auto again = SendAs(wire::IdentityText(key_b, former), plane_b, 71);
  plane_a.data->SetIdentityAt("b", wire::IdentityText(key_b, later));
  EXPECT_OK(plane_a.data->ConnectTo("b", plane_b.data->endpoint(), ""));
  const std::string bytes = Bytes(1000, 1);
  plane_a.Send("to/b", 1, bytes);
  EXPECT(plane_b.sink.Wait([&] { return plane_b.sink.received[1] == bytes; }));
  plane_b.data->PeerLost("w/a", Unavailable("host 'a' is lost"), former.session);  // the news comes late
  const auto once_more = SendAs(wire::IdentityText(key_b, former), plane_b, 72);
  for (uint64_t key = 2; key < 20; ++key) {
    plane_a.Send("to/b", key, bytes);
    EXPECT(plane_b.sink.Wait([&] { return plane_b.sink.received[key] == bytes; }));
  }
  EXPECT(!plane_b.sink.received.contains(71));
  EXPECT(!plane_b.sink.received.contains(72));
  again->Close();
  once_more->Close();
}

TEST(DataOfSomebodyWhoNeverSaidHelloIsNotTaken) {
  Plane host("w/h", true);
  transport::SocketOptions options;
  options.kind = transport::SocketKind::kDealer;
  options.identity = "c/0";
  options.curve.insecure = true;
  auto stranger = transport::Socket::Open(options);
  EXPECT_OK(stranger.status());
  EXPECT_OK((*stranger)->Connect(host.data->endpoint()));
  for (uint64_t sequence = 0; sequence < 3; ++sequence) {
    EXPECT_OK((*stranger)->Send({}, testing::DataMessage(77, sequence, "abcd")));
  }
  const wire::PeerHello hello{testing::kCluster, "", 5, 0, 0, 0, 0};
  EXPECT_OK((*stranger)->Send({}, transport::Frame(wire::Encode(hello))));
  EXPECT_OK((*stranger)->Send({}, testing::DataMessage(78, 1, "efgh")));
  EXPECT(host.sink.Wait([&] { return host.sink.complete == 1; }));
  EXPECT(!host.sink.received.contains(77));
  EXPECT_EQ(host.sink.received[78], std::string("efgh"));
  (*stranger)->Close();
}

}  // namespace
}  // namespace pathways::dataplane
