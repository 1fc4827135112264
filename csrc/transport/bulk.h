// BulkSender and BulkReceiver: large transfers cut into pieces, through shared memory on one machine and through socket
// frames between machines, with bounded memory in flight. They copy and keep count; the caller frames the messages.
//
//   sender                                        receiver
//   Send(to, key, bytes, done)
//   Pump: copy a piece into a pool chunk  ──▶  EmitPiece  ──▶  OnPiece: bounds checked, sink reads the bytes
//   OnRelease: chunk back to the pool     ◀──  EmitRelease ◀── the sink drops its lease
//   OnRelease: stops there                ◀──  EmitRelease ◀── ... or defers it: nobody expects the bytes yet
//   OnResume: sends from there            ◀──  (its user's message) when somebody does
//
// A receiver that neither kept nor deferred what it does not expect yet would close the window for what it waits for.
//
// Ownership: the sender borrows source memory until `done` and owns a SegmentPool; the receiver owns its mappings. A
//            lease keeps a piece's bytes readable and, when dropped, tells the sender so.
// Threads:   every method may be called from any thread. Copies run inside Pump, so on the caller's data thread, and
//            inside the sink. Emitter, sink and `done` are called without a lock.
// Locks:     one per object, never held across a copy, an emission or a callback.
#ifndef PTPATHWAYS_TRANSPORT_BULK_H_
#define PTPATHWAYS_TRANSPORT_BULK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/base/strided.h"
#include "csrc/transport/frame.h"
#include "csrc/transport/shm.h"

namespace pathways::transport {

// What travels with each piece of a transfer.
struct BulkPiece {
  uint64_t key = 0;     // names the transfer; chosen by the caller, unique among its transfers to one receiver
  uint64_t ticket = 0;  // names the piece; the receiver returns it
  uint64_t offset = 0;  // of this piece in the transfer
  uint64_t size = 0;    // of this piece
  uint64_t total = 0;   // of the transfer
  // Where the bytes are: a segment and an offset in it, or (empty segment) the frame beside this description.
  std::string segment;
  uint64_t segment_offset = 0;

  bool last() const { return offset + size == total; }
};

// The receiver's answer to each piece: its bytes may be overwritten. A status that is not OK ends the transfer.
struct BulkRelease {
  uint64_t key = 0;
  uint64_t ticket = 0;
  Status status;
  bool deferred = false;  // they were not taken: the transfer stops, and goes on from this piece after a resumption
};

// Transfers of up to so many bytes travel in one frame, shared memory or not, and cannot be deferred.
inline constexpr size_t kBulkInlineBytes = 32 << 10;

// What a release meant to its transfer.
struct BulkProgress {
  uint64_t bytes = 0;      // of the piece
  bool over = false;       // no piece of it is with the receiver any more, and none will be
  bool cut_short = false;  // the receiver refused, and has not been sent all of it
};

// Puts descriptions on the wire. `peer` is opaque here: what the caller passed to Send or OnPiece.
class BulkEmitter {
 public:
  virtual ~BulkEmitter() = default;
  // `payload` carries the bytes when piece.segment is empty, and is empty otherwise. Pieces of one transfer must reach
  // the receiver in the order emitted. An error fails the transfer.
  virtual Status EmitPiece(std::string_view peer, const BulkPiece& piece, Frame payload) = 0;
  virtual Status EmitRelease(std::string_view peer, const BulkRelease& release) = 0;
};

// The sizes are measured (bench_test.cc, two cores): larger pieces mean fewer wake-ups, which matters most when the
// machine is busy; a window of a few pieces keeps both copies inside the last-level cache. Up to 32 KiB a frame is as
// fast as shared memory.
struct BulkSenderOptions {
  SegmentPoolOptions pool;       // its chunk size is the piece size through shared memory
  size_t frame_bytes = 4 << 20;  // piece size in socket frames
  size_t inline_bytes = kBulkInlineBytes;
  size_t window_per_transfer = 4;  // pieces in flight
  // Of all transfers to a peer, so that one which takes nothing holds up nobody else; peers take turns.
  size_t window_per_peer = 32;
  // As many bytes of shared memory may be in flight to a peer; at least one piece may. Many transfers at once would
  // otherwise write to more chunks than the last-level cache holds.
  size_t shared_bytes_per_peer = 8 << 20;
};

class BulkSender {
 public:
  using Done = std::function<void(const Status&)>;

  // `schedule` asks that Pump be called soon on the data thread (say, reactor.Post); it may be called from any thread,
  // under the lock of a Socket, so it must not use one.
  BulkSender(BulkSenderOptions options, BulkEmitter* emitter, std::function<void()> schedule);
  // Fails what is left with CANCELLED. Frames that libzmq still reads are waited for (close the socket first: then it
  // takes milliseconds); should that take more than seconds, their `done` comes later, on libzmq's thread.
  ~BulkSender();

  // Starts a transfer. `same_machine`: the peer's MachineToken equals ours. `done` runs exactly once, when the source's
  // memory is no longer needed: OK when the receiver has let go of every byte, an error when it ended early. It runs
  // inside Pump, OnRelease, OnResume, PeerLost, Cancel or the destructor; or, for a transfer of up to `inline_bytes`,
  // which is copied and emitted at once, inside Send: call Send without a lock that `done` takes.
  void Send(std::string_view peer, bool same_machine, uint64_t key, ByteSource source, Done done);

  // Copies and emits pieces until nothing more may go out or about `max_bytes` have gone; asks for another Pump in the
  // latter case. One thread pumps at a time; a second caller returns at once.
  void Pump(uint64_t max_bytes = UINT64_MAX);

  // The peer's answer. INVALID_ARGUMENT for a ticket that this peer does not hold.
  Result<BulkProgress> OnRelease(std::string_view peer, const BulkRelease& release);
  // The peer expects a transfer that it had deferred, or with an error does not want it. True: this ended it. Does
  // nothing for one that is over.
  bool OnResume(std::string_view peer, uint64_t key, const Status& status);

  // Ends every transfer to `peer` with `status` and takes back the chunks that it held.
  void PeerLost(std::string_view peer, const Status& status);
  // Ends one transfer. Pieces already emitted still arrive; those in frames are not awaited any more, those in shared
  // memory are, because the receiver may be reading them.
  void Cancel(std::string_view peer, uint64_t key, const Status& status);

  size_t pieces_in_flight() const;
  size_t transfers() const;  // not yet done
  SegmentPool& pool();

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

// Keeps the bytes of one received piece readable. Dropping it, from any thread, emits the release.
class BulkLease {
 public:
  BulkLease();
  BulkLease(BulkLease&& other) noexcept;
  BulkLease& operator=(BulkLease&& other) noexcept;
  ~BulkLease();
  // Emits the release now; with an error, the sender ends the transfer with it.
  void Drop(Status status = OkStatus());
  // As Drop, but the piece comes again when its transfer is resumed.
  void Defer();

 private:
  void Answer(Status status, bool deferred);
  friend class BulkReceiver;
  struct State;
  std::unique_ptr<State> state_;
};

class BulkSink {
 public:
  virtual ~BulkSink() = default;
  // `bytes` (piece.size of them, for piece.offset of the transfer) are readable while `lease` lives: drop it as soon
  // as they are copied. Called on the caller of OnPiece.
  virtual void OnBulk(std::string_view peer, const BulkPiece& piece, std::span<const std::byte> bytes,
                      BulkLease lease) = 0;
};

class BulkReceiver {
 public:
  // Leases may outlive the receiver, but not `emitter`.
  // `pinner`: of the shared memory that pieces come in, or null.
  BulkReceiver(std::string cluster, BulkEmitter* emitter, BulkSink* sink, std::shared_ptr<Pinner> pinner = nullptr);
  ~BulkReceiver();

  // Checks the description and hands the bytes to the sink. An error means that the peer broke the protocol or that a
  // segment is gone; the sender has been told with a release carrying it.
  Status OnPiece(std::string_view peer, const BulkPiece& piece, Frame payload);
  // Lets go of the peer's segments. Leases in use stay valid.
  void PeerLost(std::string_view peer);

 private:
  struct Core;
  Result<std::span<const std::byte>> Locate(std::string_view peer, const BulkPiece& piece, Frame payload,
                                            BulkLease::State* state);
  std::shared_ptr<Core> core_;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_BULK_H_
