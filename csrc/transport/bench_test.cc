// Figures of the transport between two processes: round trip, one-way rate, shared-memory throughput. By default a
// short pass that checks that everything arrives; PW_BENCH=1 makes it long enough for the figures to mean something.
#include <algorithm>
#include <cstring>

#include "csrc/transport/bulk.h"
#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

using Clock = std::chrono::steady_clock;

bool Long() { return ::getenv("PW_BENCH") != nullptr; }
double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int SpinMicroseconds() {
  const char* text = ::getenv("PW_BENCH_SPIN_US");
  return text == nullptr ? 0 : std::atoi(text);
}

std::unique_ptr<Reactor> StartReactor(const char* name) {
  auto reactor = Reactor::Start({.name = name, .spin = std::chrono::microseconds(SpinMicroseconds())});
  return reactor.ok() ? *std::move(reactor) : nullptr;
}

// Answers "e..." with itself; counts "c..." and answers "n" with the count; leaves at "q".
int EchoRole(const std::string& endpoint) {
  if (!UseZmq().ok()) return 2;
  auto socket = Socket::Open({.kind = SocketKind::kDealer, .identity = "echo", .curve = {.insecure = true}});
  auto reactor = StartReactor("pw-echo");
  if (!socket.ok() || reactor == nullptr) return 3;
  Counter quit;
  uint64_t count = 0;
  Handler handler([&](Socket& s, std::string_view, Frames& frames) {
    switch (frames[0].data()[0]) {
      case 'e':
        (void)s.Send("", std::span<Frame>(frames));
        break;
      case 'c':
        ++count;
        break;
      case 'n':
        (void)s.Send("", Frame(std::to_string(count)));
        break;
      default:
        quit.Add();
    }
  });
  if (!reactor->Add(*socket, &handler).ok() || !(*socket)->Connect(endpoint).ok()) return 4;
  if (!(*socket)->Send("", Frame("hello")).ok()) return 5;
  return quit.WaitFor(1, std::chrono::minutes(5)) ? 0 : 6;
}
const RoleRegistration echo_role("echo", &EchoRole);

TEST(BenchControlMessages) {
  ASSERT_OK(UseZmq());
  RuntimeDirectory directory;
  auto socket = Socket::Open({.kind = SocketKind::kRouter, .curve = {.insecure = true}});
  ASSERT_OK(socket);
  auto reactor = StartReactor("pw-bench");
  ASSERT(reactor != nullptr);
  Counter hello, answers, counted;
  std::string told;
  const int rounds = Long() ? 50000 : 500;
  std::vector<double> micros;
  micros.reserve(rounds);
  Clock::time_point sent;
  Handler handler([&](Socket& s, std::string_view peer, Frames& frames) {
    if (frames[0].bytes() == "hello") return hello.Add();
    if (frames[0].data()[0] != 'e') {
      told = std::string(frames[0].bytes());
      return counted.Add();
    }
    micros.push_back(SecondsSince(sent) * 1e6);
    if (static_cast<int>(micros.size()) == rounds) return answers.Add();
    sent = Clock::now();
    (void)s.Send(peer, Frame(std::string(40, 'e')));
  });
  ASSERT_OK(reactor->Add(*socket, &handler));
  const std::string endpoint = ::getenv("PW_BENCH_TCP") != nullptr ? "tcp://127.0.0.1:*" : directory.Ipc("bench");
  auto bound = (*socket)->Bind(endpoint);
  ASSERT_OK(bound);
  Child child("echo", *bound);
  ASSERT(hello.WaitFor(1));

  reactor->Post([&] {
    sent = Clock::now();
    (void)(*socket)->Send("echo", Frame(std::string(40, 'e')));
  });
  ASSERT(answers.WaitFor(1, std::chrono::minutes(2)));
  std::sort(micros.begin(), micros.end());
  std::printf("  round trip, reactor to reactor, 40 bytes: p50 %.1f us, p90 %.1f us, p99 %.1f us\n", micros[rounds / 2],
              micros[rounds * 9 / 10], micros[rounds * 99 / 100]);

  const uint64_t messages = Long() ? 1000000 : 10000;
  const auto start = Clock::now();
  for (uint64_t i = 0; i < messages; ++i) EXPECT_OK((*socket)->Send("echo", Frame(std::string(40, 'c'))));
  const double submit = SecondsSince(start);
  EXPECT_OK((*socket)->Send("echo", Frame("n")));
  ASSERT(counted.WaitFor(1, std::chrono::minutes(2)));
  const double all = SecondsSince(start);
  EXPECT_EQ(told, std::to_string(messages));
  std::printf("  one way, 40 bytes: %.2f M messages/s arrived, %.2f us per Send\n", messages / all / 1e6,
              submit / messages * 1e6);
  EXPECT_OK((*socket)->Send("echo", Frame("q")));
  EXPECT_EQ(child.Wait(), 0);
  (*socket)->Close();
}

// --- Bulk between two processes. The head frame is the piece, bytewise; a release is "r" + key + ticket. ---

struct Head {
  uint64_t key, ticket, offset, size, total, segment_offset;
  char segment[200];
};

class Wire : public BulkEmitter {
 public:
  explicit Wire(Socket* socket) : socket_(socket) {}
  Status EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) override {
    Head head{piece.key, piece.ticket, piece.offset, piece.size, piece.total, piece.segment_offset, {}};
    std::memcpy(head.segment, piece.segment.data(), piece.segment.size());
    Frames frames;
    frames.emplace_back(std::string(reinterpret_cast<const char*>(&head), sizeof(head)));
    frames.push_back(std::move(payload));
    return socket_->Send(peer, std::move(frames));
  }
  Status EmitRelease(std::string_view peer, const BulkRelease& release) override {
    std::string text(17, 'r');
    std::memcpy(text.data() + 1, &release.key, 8);
    std::memcpy(text.data() + 9, &release.ticket, 8);
    return socket_->Send(peer, Frame(std::move(text)));
  }
  static BulkPiece PieceOf(const Frame& frame) {
    Head head;
    std::memcpy(&head, frame.data(), sizeof(head));
    return {head.key, head.ticket, head.offset, head.size, head.total, head.segment, head.segment_offset};
  }
  static BulkRelease ReleaseOf(const Frame& frame) {
    BulkRelease release;
    std::memcpy(&release.key, frame.data() + 1, 8);
    std::memcpy(&release.ticket, frame.data() + 9, 8);
    return release;
  }

 private:
  Socket* const socket_;
};

// Copies what arrives into one warm buffer and says "d" at the end of each transfer.
int BulkSinkRole(const std::string& endpoint) {
  if (!UseZmq().ok()) return 2;
  auto socket = Socket::Open({.kind = SocketKind::kDealer, .identity = "sink", .curve = {.insecure = true}});
  auto reactor = StartReactor("pw-sink");
  if (!socket.ok() || reactor == nullptr) return 3;
  Wire wire(socket->get());
  struct Sink : BulkSink {
    Socket* socket;
    std::vector<std::byte> buffer;
    void OnBulk(std::string_view, const BulkPiece& piece, std::span<const std::byte> bytes, BulkLease lease) override {
      if (buffer.size() < piece.total) buffer.resize(piece.total);
      std::memcpy(buffer.data() + piece.offset, bytes.data(), bytes.size());
      lease.Drop();
      if (piece.last()) (void)socket->Send("", Frame("d" + std::string(1, static_cast<char>(buffer[piece.total - 1]))));
    }
  } sink;
  sink.socket = socket->get();
  BulkReceiver receiver("bench", &wire, &sink);
  Counter quit;
  Handler handler([&](Socket&, std::string_view peer, Frames& frames) {
    if (frames.size() != 2) return quit.Add();
    if (!receiver.OnPiece(peer, Wire::PieceOf(frames[0]), std::move(frames[1])).ok()) ::_exit(7);
  });
  if (!reactor->Add(*socket, &handler).ok() || !(*socket)->Connect(endpoint).ok()) return 4;
  if (!(*socket)->Send("", Frame("hello")).ok()) return 5;
  return quit.WaitFor(1, std::chrono::minutes(5)) ? 0 : 6;
}
const RoleRegistration bulk_role("bulk_sink", &BulkSinkRole);

void MeasureBulk(bool same_machine, size_t chunk, size_t window, size_t total, int rounds) {
  RuntimeDirectory directory;
  auto socket = Socket::Open({.kind = SocketKind::kRouter, .curve = {.insecure = true}});
  ASSERT_OK(socket);
  auto reactor = StartReactor("pw-bench");
  ASSERT(reactor != nullptr);
  Wire wire(socket->get());
  BulkSenderOptions options;
  options.pool.cluster = "bench";
  options.pool.chunk_bytes = chunk;
  options.frame_bytes = chunk;
  options.window_per_transfer = window;
  std::unique_ptr<BulkSender> sender;
  sender = std::make_unique<BulkSender>(options, &wire, [&] { reactor->Post([&] { sender->Pump(); }); });
  Counter hello, received, done;
  std::atomic<char> last{0};
  Handler handler([&](Socket&, std::string_view peer, Frames& frames) {
    const std::string_view text = frames[0].bytes();
    if (text == "hello") {
      hello.Add();
    } else if (text[0] == 'd') {
      last = text[1];
      received.Add();
    } else {
      EXPECT_OK(sender->OnRelease(peer, Wire::ReleaseOf(frames[0])).status());
    }
  });
  ASSERT_OK(reactor->Add(*socket, &handler));
  auto bound = (*socket)->Bind(directory.Ipc("bulk"));
  ASSERT_OK(bound);
  Child child("bulk_sink", *bound);
  ASSERT(hello.WaitFor(1));
  std::vector<char> source(total, 'x');
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    source[total - 1] = static_cast<char>('a' + round % 26);
    const auto start = Clock::now();
    sender->Send("sink", same_machine, round + 1, {source.data(), total}, [&](const Status& status) {
      EXPECT_OK(status);
      done.Add();
    });
    ASSERT(received.WaitFor(round + 1));
    rates.push_back(total / SecondsSince(start) / 1e9);
    ASSERT(done.WaitFor(round + 1));
    EXPECT(last.load() == source[total - 1]);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("  %s, %zu MiB in pieces of %zu KiB, window %zu: median %.2f GB/s, best %.2f\n",
              same_machine ? "shared memory" : "ipc frames", total >> 20, chunk >> 10, window, rates[rates.size() / 2],
              rates.back());
  EXPECT_OK((*socket)->Send("sink", Frame("q")));
  EXPECT_EQ(child.Wait(), 0);
  (*socket)->Close();
  reactor->Stop();
}

TEST(BenchBulk) {
  ASSERT_OK(UseZmq());
  if (!Long()) {
    MeasureBulk(true, 1 << 20, 4, 8 << 20, 3);
    MeasureBulk(false, 1 << 20, 4, 8 << 20, 3);
    return;
  }
  for (size_t total_mib : {1, 8, 64, 256}) {
    for (size_t chunk_kib : {512, 1024, 2048, 4096}) {
      for (size_t window : {2, 4}) MeasureBulk(true, chunk_kib << 10, window, total_mib << 20, 21);
    }
  }
  for (size_t chunk_kib : {256, 1024, 4096}) MeasureBulk(false, chunk_kib << 10, 4, 64 << 20, 11);
}

}  // namespace
}  // namespace pathways::transport::testing
