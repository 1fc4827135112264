// The receiving half of bulk.h.
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "csrc/base/thread_annotations.h"
#include "csrc/transport/bulk.h"

namespace pathways::transport {

struct BulkReceiver::Core {
  Core(std::string cluster, BulkEmitter* emitter, BulkSink* sink, std::shared_ptr<Pinner> pinner)
      : emitter(emitter), sink(sink), segments(std::move(cluster), std::move(pinner)) {}
  BulkEmitter* const emitter;
  BulkSink* const sink;
  SegmentMap segments;
  std::mutex mutex;
  std::unordered_map<std::string, std::unordered_set<std::string>> segments_of PW_GUARDED_BY(mutex);  // by peer
};

struct BulkLease::State {
  BulkEmitter* emitter;
  std::string peer;
  uint64_t key;
  uint64_t ticket;
  Frame payload;
  std::shared_ptr<const SegmentMapping> mapping;
};

BulkLease::BulkLease() = default;
BulkLease::BulkLease(BulkLease&& other) noexcept = default;

BulkLease& BulkLease::operator=(BulkLease&& other) noexcept {
  if (this != &other) {
    Drop();
    state_ = std::move(other.state_);
  }
  return *this;
}

BulkLease::~BulkLease() { Drop(); }

void BulkLease::Drop(Status status) { Answer(std::move(status), false); }

void BulkLease::Defer() { Answer(OkStatus(), true); }

void BulkLease::Answer(Status status, bool deferred) {
  const std::unique_ptr<State> state = std::move(state_);
  if (state == nullptr) return;
  // A sender that is gone needs no answer.
  (void)state->emitter->EmitRelease(state->peer, {state->key, state->ticket, std::move(status), deferred});
}

BulkReceiver::BulkReceiver(std::string cluster, BulkEmitter* emitter, BulkSink* sink, std::shared_ptr<Pinner> pinner)
    : core_(std::make_shared<Core>(std::move(cluster), emitter, sink, std::move(pinner))) {}

BulkReceiver::~BulkReceiver() = default;

Status BulkReceiver::OnPiece(std::string_view peer, const BulkPiece& piece, Frame payload) {
  auto state = std::make_unique<BulkLease::State>();
  state->emitter = core_->emitter;
  state->peer = std::string(peer);
  state->key = piece.key;
  state->ticket = piece.ticket;
  Result<std::span<const std::byte>> bytes = Locate(peer, piece, std::move(payload), state.get());
  BulkLease lease;
  lease.state_ = std::move(state);
  if (!bytes.ok()) {
    lease.Drop(bytes.status());
    return bytes.status();
  }
  core_->sink->OnBulk(peer, piece, *bytes, std::move(lease));
  return OkStatus();
}

Result<std::span<const std::byte>> BulkReceiver::Locate(std::string_view peer, const BulkPiece& piece, Frame payload,
                                                        BulkLease::State* state) {
  if (piece.size > piece.total || piece.offset > piece.total - piece.size || (piece.size == 0 && piece.total != 0)) {
    return InvalidArgument("a piece must be a part of its transfer of " + std::to_string(piece.total) +
                           " bytes, got offset " + std::to_string(piece.offset) + " and size " +
                           std::to_string(piece.size));
  }
  if (piece.segment.empty()) {
    if (payload.size() != piece.size) {
      return InvalidArgument("a piece of " + std::to_string(piece.size) + " bytes came with a frame of " +
                             std::to_string(payload.size()));
    }
    state->payload = std::move(payload);
    return std::as_bytes(std::span(state->payload.data(), state->payload.size()));
  }
  PW_ASSIGN_OR_RETURN(SegmentMap::View view, core_->segments.Open(piece.segment, piece.segment_offset, piece.size));
  state->mapping = std::move(view.mapping);
  std::lock_guard lock(core_->mutex);
  core_->segments_of[std::string(peer)].insert(piece.segment);
  return view.bytes;
}

void BulkReceiver::PeerLost(std::string_view peer) {
  std::unordered_set<std::string> segments;
  {
    std::lock_guard lock(core_->mutex);
    auto at = core_->segments_of.find(std::string(peer));
    if (at == core_->segments_of.end()) return;
    segments = std::move(at->second);
    core_->segments_of.erase(at);
  }
  for (const std::string& segment : segments) core_->segments.Forget(segment);
}

}  // namespace pathways::transport
