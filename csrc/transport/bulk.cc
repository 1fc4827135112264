#include "csrc/transport/bulk.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pathways::transport {
namespace {

// How long a destructor waits for libzmq to let go of borrowed memory, which it does soon after the socket closed.
constexpr auto kBorrowedWait = std::chrono::seconds(5);

}  // namespace

void CopyBulk(void* to, const void* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

struct Transfer;

// What goes to one peer. Guarded by Core::mutex.
struct BulkPeer {
  size_t in_flight = 0;
  std::deque<std::shared_ptr<Transfer>> waiting;  // for a place in its window
};

// One Send, until its memory is no longer needed. Fields are guarded by Core::mutex unless said otherwise.
struct Transfer {
  // Constant:
  std::string peer;
  std::shared_ptr<BulkPeer> window;
  bool same_machine;
  uint64_t key;
  const std::byte* data;
  uint64_t size;

  BulkSender::Done done;
  uint64_t next = 0;  // first byte not yet emitted
  bool emitted_any = false;
  size_t in_flight = 0;  // pieces emitted and not yet released
  size_t borrowed = 0;   // frames whose bytes libzmq still reads from `data`
  bool queued = false;   // in Core::ready
  bool copying = false;  // the pump uses `data` just now
  bool ended = false;    // every byte was emitted, or `status` says why not
  Status status;

  bool has_more() const { return !ended && (next < size || !emitted_any); }
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
    uint64_t bytes;
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
    return options;
  }

  void Schedule() {
    std::lock_guard lock(schedule_mutex);
    if (schedule) schedule();
  }

  // All four need the lock.
  void CollectDue(const TransferPtr& transfer, Finished* finished) {
    if (!transfer->is_due()) return;
    finished->calls.emplace_back(std::exchange(transfer->done, nullptr), transfer->status);
    open.erase(transfer);
  }
  void End(const TransferPtr& transfer, const Status& status, Finished* finished) {
    if (transfer->ended) return;
    transfer->ended = true;
    transfer->status = status;
    CollectDue(transfer, finished);
  }
  void Queue(const TransferPtr& transfer) {
    if (transfer->queued || transfer->copying || !transfer->has_more()) return;
    if (transfer->in_flight >= options.window_per_transfer) return;
    transfer->queued = true;
    ready.push_back(transfer);
  }
  bool HasRoom(const Transfer& transfer) const { return transfer.window->in_flight < options.window_per_peer; }
  TransferPtr NextReady() {
    while (!ready.empty()) {
      TransferPtr transfer = std::move(ready.front());
      ready.pop_front();
      if (transfer->has_more() && !HasRoom(*transfer)) {
        transfer->window->waiting.push_back(std::move(transfer));
        continue;
      }
      transfer->queued = false;
      if (transfer->has_more()) return transfer;
      Admit(*transfer->window);
    }
    return nullptr;
  }
  void Admit(BulkPeer& window) {
    if (window.waiting.empty()) return;
    ready.push_back(std::move(window.waiting.front()));
    window.waiting.pop_front();
  }
  std::shared_ptr<BulkPeer> WindowOf(const std::string& peer) {
    std::shared_ptr<BulkPeer>& window = windows[peer];
    if (window == nullptr) window = std::make_shared<BulkPeer>();
    return window;
  }

  // A transfer that waits and its window hold each other.
  void ForgetWindow(std::unordered_map<std::string, std::shared_ptr<BulkPeer>>::iterator at) {
    if (at == windows.end()) return;
    at->second->waiting.clear();
    windows.erase(at);
  }

  uint64_t SendPiece(const TransferPtr& transfer, Finished* finished);
  Frame MakeFrame(const TransferPtr& transfer, uint64_t offset, uint64_t size);
  void Unborrow(const TransferPtr& transfer);
  std::optional<ShmChunk> TakeBack(std::unordered_map<uint64_t, InFlight>::iterator at);

  const BulkSenderOptions options;
  BulkEmitter* const emitter;

  std::mutex schedule_mutex;
  std::function<void()> schedule;  // guarded by schedule_mutex; empty once the sender is gone

  SegmentPool pool;

  std::mutex mutex;
  std::condition_variable unborrowed;
  // Guarded by mutex:
  std::unordered_set<TransferPtr> open;  // not yet done
  std::deque<TransferPtr> ready;         // may emit a piece, in turn
  std::unordered_map<std::string, std::shared_ptr<BulkPeer>> windows;
  std::unordered_map<uint64_t, InFlight> in_flight;  // by ticket
  std::vector<TransferPtr> due;                      // became due on libzmq's thread
  uint64_t next_ticket = 1;
  size_t borrowed = 0;
  bool pumping = false;
  bool pump_again = false;
  bool closed = false;
};

// Copies and emits the next piece; the caller has set `copying`, so that nobody else touches the transfer's progress.
// Returns the piece's size, or 0 with the transfer queued again when there is no room for it now.
uint64_t BulkSender::Core::SendPiece(const TransferPtr& transfer, Finished* finished) {
  BulkPiece piece;
  piece.key = transfer->key;
  piece.offset = transfer->next;  // written by the pump only
  piece.total = transfer->size;
  const uint64_t left = transfer->size - transfer->next;
  std::optional<ShmChunk> chunk;
  if (transfer->same_machine && transfer->size > options.inline_bytes) {
    Result<ShmChunk> acquired = pool.TryAcquire();
    if (acquired.ok()) {
      chunk = *acquired;
      piece.size = std::min<uint64_t>(left, chunk->size);
      piece.segment = std::string(chunk->segment);
      piece.segment_offset = chunk->offset;
      CopyBulk(chunk->data, transfer->data + piece.offset, piece.size);
    } else if (acquired.status().code() == Code::kResourceExhausted) {
      std::lock_guard lock(mutex);
      transfer->copying = false;
      CollectDue(transfer, finished);
      if (transfer->has_more() && !transfer->queued) {
        transfer->queued = true;
        ready.push_front(transfer);
      }
      return 0;
    }
    // Otherwise there is no shared memory at all, and the bytes travel in a frame.
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
      in_flight.emplace(piece.ticket, InFlight{transfer, chunk, piece.size});
    }
  }
  if (cancelled) {
    if (chunk) pool.Release(*chunk);
    return std::max<uint64_t>(piece.size, 1);  // dropping a borrowed payload counts it down
  }
  const Status emitted = emitter->EmitPiece(transfer->peer, piece, std::move(payload));
  std::optional<ShmChunk> returned;
  {
    std::lock_guard lock(mutex);
    transfer->copying = false;
    transfer->next += piece.size;
    transfer->emitted_any = true;
    if (!emitted.ok()) {
      if (auto at = in_flight.find(piece.ticket); at != in_flight.end()) returned = TakeBack(at);
      End(transfer, emitted, finished);
    } else if (transfer->next == transfer->size) {
      End(transfer, OkStatus(), finished);
    }
    CollectDue(transfer, finished);
    Queue(transfer);
  }
  if (returned) pool.Release(*returned);
  return std::max<uint64_t>(piece.size, 1);
}

Frame BulkSender::Core::MakeFrame(const TransferPtr& transfer, uint64_t offset, uint64_t size) {
  const std::byte* bytes = transfer->data + offset;
  if (size <= options.inline_bytes) return Frame(std::string(reinterpret_cast<const char*>(bytes), size));
  {
    std::lock_guard lock(mutex);
    ++transfer->borrowed;
    ++borrowed;
  }
  return Frame::Borrow(bytes, size, [core = shared_from_this(), transfer] { core->Unborrow(transfer); });
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
  BulkPeer& window = *at->second.transfer->window;
  --at->second.transfer->in_flight;
  --window.in_flight;
  in_flight.erase(at);
  Admit(window);
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
  std::unique_lock lock(core_->mutex);
  const auto open = core_->open;
  for (const auto& transfer : open) {
    core_->End(transfer, Cancelled("the sender of bulk data was shut down"), &finished);
  }
  core_->unborrowed.wait_for(lock, kBorrowedWait, [this] { return core_->borrowed == 0; });
  core_->closed = true;
  for (const auto& transfer : open) core_->CollectDue(transfer, &finished);
  core_->ready.clear();
  while (!core_->windows.empty()) core_->ForgetWindow(core_->windows.begin());
  core_->due.clear();
  core_->in_flight.clear();
}

void BulkSender::Send(std::string_view peer, bool same_machine, uint64_t key, const void* data, uint64_t size,
                      Done done) {
  auto transfer = std::make_shared<Transfer>();
  transfer->peer = std::string(peer);
  transfer->same_machine = same_machine;
  transfer->key = key;
  transfer->data = static_cast<const std::byte*>(data);
  transfer->size = size;
  transfer->done = std::move(done);
  bool now = false;
  {
    std::lock_guard lock(core_->mutex);
    transfer->window = core_->WindowOf(transfer->peer);
    core_->open.insert(transfer);
    // What fits one copied frame need not wait for the data thread.
    now = size <= core_->options.inline_bytes && core_->HasRoom(*transfer);
    if (now) {
      transfer->copying = true;
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
  Core::Finished finished;
  {
    std::lock_guard lock(core_->mutex);
    if (core_->pumping) {
      core_->pump_again = true;
      return;
    }
    core_->pumping = true;
  }
  uint64_t sent = 0;
  for (;;) {
    Core::TransferPtr transfer;
    {
      Core::Finished now_due;
      std::lock_guard lock(core_->mutex);
      core_->pump_again = false;
      for (const auto& each : std::exchange(core_->due, {})) core_->CollectDue(each, &now_due);
      if (sent < max_bytes) transfer = core_->NextReady();
      if (transfer == nullptr) {
        core_->pumping = false;
        break;
      }
      transfer->copying = true;
    }
    Core::Finished piece_done;
    const uint64_t size = core_->SendPiece(transfer, &piece_done);
    sent += size;
    if (size > 0) continue;
    std::lock_guard lock(core_->mutex);
    if (core_->pump_again) continue;  // a chunk came back just now
    core_->pumping = false;
    return;
  }
  bool more = false;
  {
    std::lock_guard lock(core_->mutex);
    more = !core_->ready.empty();
  }
  if (more) core_->Schedule();
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
    progress.bytes = at->second.bytes;
    chunk = core_->TakeBack(at);
    if (!release.status.ok()) {
      progress.cut_short = transfer->has_more();
      core_->End(transfer, release.status, &finished);
    }
    progress.over = transfer->ended && transfer->in_flight == 0;
    core_->Queue(transfer);
    // A pump that is looking for a chunk just now may have missed this one.
    schedule = !core_->ready.empty() || core_->pumping;
    core_->pump_again = core_->pumping;
  }
  if (chunk) core_->pool.Release(*chunk);
  if (schedule) core_->Schedule();
  return progress;
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
  for (const ShmChunk& chunk : chunks) core_->pool.Release(chunk);
  core_->Schedule();  // the window is open for others
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
