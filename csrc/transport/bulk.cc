#include "csrc/transport/bulk.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/thread_annotations.h"

namespace pathways::transport {
namespace {

// How long a destructor waits for libzmq to let go of borrowed memory, which it does soon after the socket closed.
constexpr auto kBorrowedWait = std::chrono::seconds(5);

}  // namespace

struct Transfer;

// What goes to one peer. Guarded by Core::mutex.
struct BulkPeer {
  size_t in_flight = 0;                         // pieces
  uint64_t shared_bytes = 0;                    // of those in shared memory
  std::deque<std::shared_ptr<Transfer>> ready;  // may emit a piece, in turn
  bool listed = false;                          // in Core::ready or Core::starved
  uint64_t starved_at = 0;                      // found no chunk when so many had come back, plus one
};

// One Send, until its memory is no longer needed. Fields are guarded by Core::mutex unless said otherwise.
struct Transfer {
  Transfer(std::string peer, bool same_machine, uint64_t key, ByteSource source, BulkSender::Done done)
      : peer(std::move(peer)), same_machine(same_machine), key(key), source(std::move(source)), done(std::move(done)) {}

  // Constant:
  std::string peer;
  bool same_machine;
  uint64_t key;
  ByteSource source;

  std::shared_ptr<BulkPeer> window;
  BulkSender::Done done;
  uint64_t next = 0;  // first byte not yet emitted
  bool emitted_any = false;
  std::optional<uint64_t> deferred_at;  // the receiver wants it later, from there
  uint64_t round = 0;                   // how often it was resumed
  size_t in_flight = 0;                 // pieces emitted and not yet released
  uint64_t released = 0;                // bytes
  size_t borrowed = 0;                  // frames whose bytes libzmq still reads from the source
  bool queued = false;                  // in its peer's ready
  bool copying = false;                 // the pump reads the source just now, from `copied`, for `copied_round`
  uint64_t copied = 0;
  uint64_t copied_round = 0;
  bool ended = false;  // the receiver has let go of every byte, or `status` says why not
  Status status;

  bool has_more() const { return !ended && (deferred_at || next < source.size() || !emitted_any); }
  bool may_go_on() const { return has_more() && !deferred_at; }
  void Copying() {
    copying = true;
    copied = next;
    copied_round = round;
  }
  // The source memory is free and nobody has been told yet.
  bool is_due() const { return ended && borrowed == 0 && !copying && done != nullptr; }
};

struct BulkSender::Core : std::enable_shared_from_this<BulkSender::Core> {
  using TransferPtr = std::shared_ptr<Transfer>;
  // `done` calls collected under the lock and made after it.
  struct Finished {
    std::vector<std::pair<Done, Status>> calls;
    ~Finished() {
      for (auto& [done, status] : calls) done(status);
    }
  };
  struct InFlight {
    TransferPtr transfer;
    std::optional<ShmChunk> chunk;
    uint64_t offset;
    uint64_t bytes;
    uint64_t round;
  };

  Core(BulkSenderOptions options, BulkEmitter* emitter, std::function<void()> schedule)
      : options(Checked(std::move(options))),
        emitter(emitter),
        schedule(std::move(schedule)),
        pool(this->options.pool) {}

  static BulkSenderOptions Checked(BulkSenderOptions options) {
    // A transfer that counts as small must fit one frame.
    options.frame_bytes = std::max<size_t>({options.frame_bytes, options.inline_bytes, 1});
    options.window_per_transfer = std::max<size_t>(options.window_per_transfer, 1);
    options.window_per_peer = std::max<size_t>(options.window_per_peer, 1);
    options.shared_bytes_per_peer = std::max<size_t>(options.shared_bytes_per_peer, 1);
    return options;
  }

  void Schedule() {
    std::lock_guard lock(schedule_mutex);
    if (schedule) schedule();
  }

  void CollectDue(const TransferPtr& transfer, Finished* finished) PW_REQUIRES(mutex) {
    if (!transfer->is_due()) return;
    finished->calls.emplace_back(std::exchange(transfer->done, nullptr), transfer->status);
    open.erase(transfer);
  }
  void End(const TransferPtr& transfer, const Status& status, Finished* finished) PW_REQUIRES(mutex) {
    if (transfer->ended) return;
    transfer->ended = true;
    transfer->status = status;
    CollectDue(transfer, finished);
  }
  // Ends it when nothing of it can be asked for again.
  void EndIfTaken(const TransferPtr& transfer, Finished* finished) PW_REQUIRES(mutex) {
    if (transfer->has_more() || transfer->copying) return;
    if (transfer->in_flight == 0 || transfer->source.size() <= options.inline_bytes)
      End(transfer, OkStatus(), finished);
  }
  void Queue(const TransferPtr& transfer) PW_REQUIRES(mutex) {
    if (transfer->queued || transfer->copying || !transfer->may_go_on()) return;
    if (transfer->in_flight >= options.window_per_transfer) return;
    transfer->queued = true;
    transfer->window->ready.push_back(transfer);
    List(transfer->window);
  }
  bool HasRoomInline(const BulkPeer& window) const { return window.in_flight < options.window_per_peer; }
  bool HasRoom(const BulkPeer& window) const {
    return HasRoomInline(window) && window.shared_bytes < options.shared_bytes_per_peer;
  }
  void List(const std::shared_ptr<BulkPeer>& window) PW_REQUIRES(mutex) {
    if (window->listed || window->ready.empty() || !HasRoom(*window)) return;
    window->listed = true;
    ready.push_back(window);
  }
  // One piece for each peer in turn, so that it costs a peer nothing how many transfers another one has.
  TransferPtr NextReady() PW_REQUIRES(mutex) {
    while (!ready.empty()) {
      const std::shared_ptr<BulkPeer> window = std::move(ready.front());
      ready.pop_front();
      if (window->starved_at == chunks_given_back) {
        starved.push_back(window);  // still listed; GiveBack puts it back
        continue;
      }
      window->listed = false;
      if (!HasRoom(*window)) continue;  // listed again by TakeBack
      while (!window->ready.empty()) {
        TransferPtr transfer = std::move(window->ready.front());
        window->ready.pop_front();
        transfer->queued = false;
        if (!transfer->may_go_on()) continue;
        List(window);  // behind the others
        return transfer;
      }
    }
    return nullptr;
  }
  std::shared_ptr<BulkPeer> WindowOf(const std::string& peer) PW_REQUIRES(mutex) {
    std::shared_ptr<BulkPeer>& window = windows[peer];
    if (window == nullptr) window = std::make_shared<BulkPeer>();
    return window;
  }

  // A transfer that waits and its window hold each other.
  void ForgetWindow(std::unordered_map<std::string, std::shared_ptr<BulkPeer>>::iterator at) PW_REQUIRES(mutex) {
    if (at == windows.end()) return;
    at->second->ready.clear();
    windows.erase(at);
  }

  uint64_t SendPiece(const TransferPtr& transfer, Finished* finished);
  Frame MakeFrame(const TransferPtr& transfer, uint64_t offset, uint64_t size);
  void Unborrow(const TransferPtr& transfer);
  void GiveBack(const std::vector<ShmChunk>& chunks);
  std::optional<ShmChunk> TakeBack(std::unordered_map<uint64_t, InFlight>::iterator at) PW_REQUIRES(mutex);

  const BulkSenderOptions options;
  BulkEmitter* const emitter;

  std::mutex schedule_mutex;
  std::function<void()> schedule PW_GUARDED_BY(schedule_mutex);  // empty once the sender is gone

  SegmentPool pool;

  std::mutex mutex;
  std::condition_variable unborrowed;
  std::unordered_set<TransferPtr> open PW_GUARDED_BY(mutex);  // not yet done
  // Peers with something to emit and room in their windows, in turn; and the same, once a chunk comes back.
  std::deque<std::shared_ptr<BulkPeer>> ready PW_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<BulkPeer>> starved PW_GUARDED_BY(mutex);
  std::unordered_map<std::string, std::shared_ptr<BulkPeer>> windows PW_GUARDED_BY(mutex);
  std::unordered_map<uint64_t, InFlight> in_flight PW_GUARDED_BY(mutex);  // by ticket
  std::vector<TransferPtr> due PW_GUARDED_BY(mutex);                      // became due on libzmq's thread
  uint64_t next_ticket PW_GUARDED_BY(mutex) = 1;
  size_t borrowed PW_GUARDED_BY(mutex) = 0;
  std::atomic<uint64_t> chunks_given_back{1};  // how often, plus one; changed under mutex
  bool pumping PW_GUARDED_BY(mutex) = false;
  bool closed PW_GUARDED_BY(mutex) = false;
};

// Copies and emits the next piece; the caller has set `copying`, so that nobody else touches the transfer's progress.
// Returns the piece's size, or 0 with the transfer queued again when there is no chunk for it now.
uint64_t BulkSender::Core::SendPiece(const TransferPtr& transfer, Finished* finished) {
  BulkPiece piece;
  piece.key = transfer->key;
  piece.offset = transfer->copied;
  piece.total = transfer->source.size();
  const uint64_t left = piece.total - piece.offset;
  std::optional<ShmChunk> chunk;
  if (transfer->same_machine && piece.total > options.inline_bytes) {
    const uint64_t given_back = chunks_given_back.load();
    Result<ShmChunk> acquired = pool.TryAcquire();
    if (acquired.ok()) {
      chunk = *acquired;
      piece.size = std::min<uint64_t>(left, chunk->size);
      piece.segment = std::string(chunk->segment);
      piece.segment_offset = chunk->offset;
      // By plain memcpy: stores that bypass the cache were slower in every measurement, because the other process reads
      // the chunk from the cache.
      transfer->source.Copy(piece.offset, piece.size, chunk->data);
    } else if (acquired.status().code() == Code::kResourceExhausted) {
      std::lock_guard lock(mutex);
      // Others may keep their chunks for long, so a peer that has few pieces in flight does not wait for them.
      if (transfer->window->in_flight >= options.window_per_transfer) {
        transfer->copying = false;
        CollectDue(transfer, finished);
        if (transfer->may_go_on() && !transfer->queued) {
          transfer->queued = true;
          transfer->window->ready.push_front(transfer);
          transfer->window->starved_at = given_back;
          List(transfer->window);
        }
        return 0;
      }
    }
    // Without a chunk the bytes travel in a frame.
  }
  Frame payload;
  if (!chunk) {
    piece.size = std::min<uint64_t>(left, options.frame_bytes);
    payload = MakeFrame(transfer, piece.offset, piece.size);
  }
  bool cancelled = false;
  {
    std::lock_guard lock(mutex);
    cancelled = transfer->ended;
    if (cancelled) {
      transfer->copying = false;
      CollectDue(transfer, finished);
    } else {
      // Before the emission, because the answer may overtake its return.
      piece.ticket = next_ticket++;
      ++transfer->in_flight;
      ++transfer->window->in_flight;
      if (chunk) transfer->window->shared_bytes += piece.size;
      in_flight.emplace(piece.ticket, InFlight{transfer, chunk, piece.offset, piece.size, transfer->copied_round});
    }
  }
  if (cancelled) {
    if (chunk) GiveBack({*chunk});
    return std::max<uint64_t>(piece.size, 1);  // dropping a borrowed payload counts it down
  }
  const Status emitted = emitter->EmitPiece(transfer->peer, piece, std::move(payload));
  std::optional<ShmChunk> returned;
  {
    std::lock_guard lock(mutex);
    transfer->copying = false;
    transfer->emitted_any = true;
    if (transfer->round == transfer->copied_round) transfer->next = piece.offset + piece.size;
    if (!emitted.ok()) {
      if (auto at = in_flight.find(piece.ticket); at != in_flight.end()) returned = TakeBack(at);
      End(transfer, emitted, finished);
    }
    EndIfTaken(transfer, finished);
    CollectDue(transfer, finished);
    Queue(transfer);
  }
  if (returned) GiveBack({*returned});
  return std::max<uint64_t>(piece.size, 1);
}

// Without the lock. Whoever waits for a chunk may try again.
void BulkSender::Core::GiveBack(const std::vector<ShmChunk>& chunks) {
  for (const ShmChunk& chunk : chunks) pool.Release(chunk);
  if (chunks.empty()) return;
  std::lock_guard lock(mutex);
  ++chunks_given_back;
  for (std::shared_ptr<BulkPeer>& window : std::exchange(starved, {})) ready.push_back(std::move(window));
}

Frame BulkSender::Core::MakeFrame(const TransferPtr& transfer, uint64_t offset, uint64_t size) {
  const std::byte* run = transfer->source.run();
  if (run == nullptr || size <= options.inline_bytes) {
    std::string bytes(size, '\0');
    transfer->source.Copy(offset, size, bytes.data());
    return Frame(std::move(bytes));
  }
  {
    std::lock_guard lock(mutex);
    ++transfer->borrowed;
    ++borrowed;
  }
  return Frame::Borrow(run + offset, size, [core = shared_from_this(), transfer] { core->Unborrow(transfer); });
}

// On libzmq's I/O thread, or within Send under the socket's lock; hence no `done` from here while the sender lives.
void BulkSender::Core::Unborrow(const TransferPtr& transfer) {
  bool tell_pump = false;
  {
    Finished finished;
    std::lock_guard lock(mutex);
    --borrowed;
    --transfer->borrowed;
    if (transfer->is_due()) {
      if (closed) {
        CollectDue(transfer, &finished);
      } else {
        due.push_back(transfer);
        tell_pump = true;
      }
    }
    unborrowed.notify_all();
  }
  if (tell_pump) Schedule();
}

// Needs the lock. The piece leaves the books; the caller gives its chunk back to the pool after the lock.
std::optional<ShmChunk> BulkSender::Core::TakeBack(std::unordered_map<uint64_t, InFlight>::iterator at) {
  std::optional<ShmChunk> chunk = at->second.chunk;
  const std::shared_ptr<BulkPeer> window = at->second.transfer->window;
  --at->second.transfer->in_flight;
  --window->in_flight;
  if (chunk) window->shared_bytes -= at->second.bytes;
  in_flight.erase(at);
  List(window);
  return chunk;
}

BulkSender::BulkSender(BulkSenderOptions options, BulkEmitter* emitter, std::function<void()> schedule)
    : core_(std::make_shared<Core>(std::move(options), emitter, std::move(schedule))) {}

BulkSender::~BulkSender() {
  {
    std::lock_guard lock(core_->schedule_mutex);
    core_->schedule = nullptr;
  }
  Core::Finished finished;
  UniqueLock lock(core_->mutex);
  const auto open = core_->open;
  for (const auto& transfer : open) {
    core_->End(transfer, Cancelled("the sender of bulk data was shut down"), &finished);
  }
  core_->unborrowed.wait_for(lock, kBorrowedWait, [this]() PW_REQUIRES(core_->mutex) { return core_->borrowed == 0; });
  core_->closed = true;
  for (const auto& transfer : open) core_->CollectDue(transfer, &finished);
  core_->ready.clear();
  core_->starved.clear();
  while (!core_->windows.empty()) core_->ForgetWindow(core_->windows.begin());
  core_->due.clear();
  core_->in_flight.clear();
}

void BulkSender::Send(std::string_view peer, bool same_machine, uint64_t key, ByteSource source, Done done) {
  const uint64_t size = source.size();
  auto transfer = std::make_shared<Transfer>(std::string(peer), same_machine, key, std::move(source), std::move(done));
  bool now = false;
  {
    std::lock_guard lock(core_->mutex);
    transfer->window = core_->WindowOf(transfer->peer);
    core_->open.insert(transfer);
    // What fits one copied frame need not wait for the data thread.
    now = size <= core_->options.inline_bytes && core_->HasRoomInline(*transfer->window);
    if (now) {
      transfer->Copying();
    } else {
      core_->Queue(transfer);
    }
  }
  if (now) {
    Core::Finished finished;
    core_->SendPiece(transfer, &finished);
  } else {
    core_->Schedule();
  }
}

void BulkSender::Pump(uint64_t max_bytes) {
  {
    std::lock_guard lock(core_->mutex);
    if (std::exchange(core_->pumping, true)) return;  // who pumps looks again before it stops
  }
  for (uint64_t sent = 0;;) {
    Core::TransferPtr transfer;
    bool more = false;
    {
      Core::Finished now_due;
      std::lock_guard lock(core_->mutex);
      for (const auto& each : std::exchange(core_->due, {})) core_->CollectDue(each, &now_due);
      if (sent < max_bytes) transfer = core_->NextReady();
      if (transfer == nullptr) {
        core_->pumping = false;
        more = !core_->ready.empty();
      } else {
        transfer->Copying();
      }
    }
    if (transfer == nullptr) {
      if (more) core_->Schedule();
      return;
    }
    Core::Finished piece_done;
    sent += core_->SendPiece(transfer, &piece_done);
  }
}

Result<BulkProgress> BulkSender::OnRelease(std::string_view peer, const BulkRelease& release) {
  BulkProgress progress;
  Core::Finished finished;
  std::optional<ShmChunk> chunk;
  bool schedule = false;
  {
    std::lock_guard lock(core_->mutex);
    auto at = core_->in_flight.find(release.ticket);
    if (at == core_->in_flight.end() || at->second.transfer->peer != peer || at->second.transfer->key != release.key) {
      return InvalidArgument("a release must name a piece that its sender holds, got ticket " +
                             std::to_string(release.ticket) + " of transfer " + std::to_string(release.key));
    }
    const Core::TransferPtr transfer = at->second.transfer;
    if (release.deferred) {
      // One that was on its way when the transfer was resumed has been sent again since.
      if (!transfer->ended && at->second.round == transfer->round) {
        transfer->deferred_at = std::min(transfer->deferred_at.value_or(UINT64_MAX), at->second.offset);
      }
    } else {
      progress.bytes = at->second.bytes;
      transfer->released += progress.bytes;
    }
    chunk = core_->TakeBack(at);
    if (!release.status.ok()) {
      progress.cut_short = transfer->has_more();
      core_->End(transfer, release.status, &finished);
    }
    core_->EndIfTaken(transfer, &finished);
    // The answer to the last piece may come before SendPiece has noted that it was the last.
    const bool whole = transfer->released == transfer->source.size();
    progress.over = (transfer->ended || whole) && transfer->in_flight == 0;
    core_->Queue(transfer);
    schedule = !core_->ready.empty();
  }
  if (chunk) core_->GiveBack({*chunk});
  if (schedule || chunk) core_->Schedule();
  return progress;
}

bool BulkSender::OnResume(std::string_view peer, uint64_t key, const Status& status) {
  Core::Finished finished;
  {
    std::lock_guard lock(core_->mutex);
    const auto at = std::find_if(core_->open.begin(), core_->open.end(), [&](const Core::TransferPtr& transfer) {
      return transfer->deferred_at && transfer->key == key && transfer->peer == peer && !transfer->ended;
    });
    if (at == core_->open.end()) return false;
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): End takes it out of `open`.
    const Core::TransferPtr transfer = *at;
    if (!status.ok()) {
      core_->End(transfer, status, &finished);
      return true;
    }
    transfer->next = *std::exchange(transfer->deferred_at, std::nullopt);
    ++transfer->round;
    core_->Queue(transfer);
  }
  core_->Schedule();
  return false;
}

void BulkSender::PeerLost(std::string_view peer, const Status& status) {
  Core::Finished finished;
  std::vector<ShmChunk> chunks;
  {
    std::lock_guard lock(core_->mutex);
    for (auto at = core_->in_flight.begin(); at != core_->in_flight.end();) {
      auto next = std::next(at);
      if (at->second.transfer->peer == peer) {
        if (auto chunk = core_->TakeBack(at)) chunks.push_back(*chunk);
      }
      at = next;
    }
    const auto open = core_->open;
    for (const auto& transfer : open) {
      if (transfer->peer == peer) core_->End(transfer, status, &finished);
    }
    core_->ForgetWindow(core_->windows.find(std::string(peer)));
  }
  core_->GiveBack(chunks);
  core_->Schedule();
}

void BulkSender::Cancel(std::string_view peer, uint64_t key, const Status& status) {
  Core::Finished finished;
  std::lock_guard lock(core_->mutex);
  for (auto at = core_->in_flight.begin(); at != core_->in_flight.end();) {
    auto next = std::next(at);
    const Transfer& transfer = *at->second.transfer;
    if (!at->second.chunk && transfer.peer == peer && transfer.key == key) (void)core_->TakeBack(at);
    at = next;
  }
  const auto open = core_->open;
  for (const auto& transfer : open) {
    if (transfer->peer == peer && transfer->key == key) core_->End(transfer, status, &finished);
  }
}

size_t BulkSender::pieces_in_flight() const {
  std::lock_guard lock(core_->mutex);
  return core_->in_flight.size();
}

size_t BulkSender::transfers() const {
  std::lock_guard lock(core_->mutex);
  return core_->open.size();
}

SegmentPool& BulkSender::pool() { return core_->pool; }

}  // namespace pathways::transport
