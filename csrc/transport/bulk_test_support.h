// A loop of a sender and a receiver of bulk transfers, in which nothing moves by itself.
#ifndef PTPATHWAYS_TRANSPORT_BULK_TEST_SUPPORT_H_
#define PTPATHWAYS_TRANSPORT_BULK_TEST_SUPPORT_H_

#include <unistd.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/testing/test.h"
#include "csrc/transport/bulk.h"

namespace pathways::transport::testing {

inline std::string ClusterName(const char* test) { return std::string("t-") + test + "-" + std::to_string(::getpid()); }

inline std::string RandomBytes(size_t size, unsigned seed) {
  std::minstd_rand random(seed + 1);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// Carries pieces and releases between a sender and a receiver when told to; nothing moves by itself.
class Loop : public BulkEmitter, public BulkSink {
 public:
  struct Sent {
    std::string peer;
    BulkPiece piece;
    Frame payload;
  };
  struct Returned {
    std::string peer;
    BulkRelease release;
  };

  explicit Loop(BulkSenderOptions options)
      : sender(std::make_unique<BulkSender>(options, this, [this] { scheduled.store(true); })),
        receiver(options.pool.cluster, this, this) {}

  Status EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) override {
    if (!emit_status.ok()) return emit_status;
    pieces.push_back({std::string(peer), piece, std::move(payload)});
    if (answered_within) {
      DeliverPiece();
      overs.push_back(sender->OnRelease(releases.front().peer, releases.front().release)->over);
      releases.pop_front();
    }
    return OkStatus();
  }
  Status EmitRelease(std::string_view peer, const BulkRelease& release) override {
    releases.push_back({std::string(peer), release});
    return OkStatus();
  }
  void OnBulk(std::string_view, const BulkPiece& piece, std::span<const std::byte> bytes, BulkLease lease) override {
    std::string& out = received[piece.key];
    EXPECT_EQ(out.size(), piece.offset);  // in order
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (piece.last()) ++complete;
    if (keep_leases) leases.push_back(std::move(lease));
  }

  void Pump() {
    while (scheduled.exchange(false)) sender->Pump();
  }
  void DeliverPiece() {
    Sent sent = std::move(pieces.front());
    pieces.pop_front();
    last_status = receiver.OnPiece(sent.peer, sent.piece, std::move(sent.payload));
  }
  void DeliverRelease() {
    Returned returned = std::move(releases.front());
    releases.pop_front();
    last_status = sender->OnRelease(returned.peer, returned.release).status();
  }
  void RunToEnd() {
    do {
      Pump();
      while (!pieces.empty()) DeliverPiece();
      while (!releases.empty()) DeliverRelease();
    } while (scheduled.load() || !pieces.empty());
  }

  std::atomic<bool> scheduled{false};
  std::unique_ptr<BulkSender> sender;
  BulkReceiver receiver;
  std::deque<Sent> pieces;
  std::deque<Returned> releases;
  std::map<uint64_t, std::string> received;
  std::vector<BulkLease> leases;
  Status emit_status, last_status;
  bool keep_leases = false;
  bool answered_within = false;  // each piece before its emission has returned
  std::vector<bool> overs;       // what those answers gave
  int complete = 0;
};

inline BulkSenderOptions Small(const char* test) {
  BulkSenderOptions options;
  options.pool = {.cluster = ClusterName(test), .chunk_bytes = 4096, .segment_bytes = 16384, .total_bytes = 65536};
  options.frame_bytes = 4096;
  options.inline_bytes = 512;
  options.window_per_transfer = 3;
  options.window_per_peer = 8;
  return options;
}

// Counts the calls of one `done` and keeps its status.
struct Outcome {
  int calls = 0;
  Status status;
  BulkSender::Done Done() {
    return [this](const Status& s) {
      ++calls;
      status = s;
    };
  }
};

}  // namespace pathways::transport::testing

#endif  // PTPATHWAYS_TRANSPORT_BULK_TEST_SUPPORT_H_
