// Incoming: buffers whose bytes are on their way, from a client or from another worker.
//
// The engine declares a buffer when the control message comes; its bytes may arrive before or after that. The device
// buffer exists, and computations are enqueued on it, before the first byte does.
//
// Each transfer has one sender, which the control message names: a client, whose keys it has, or a host. What others
// send under its key is refused, before the announcement and after it.
//
// Ownership: owned by the engine; the data plane's sink.
// Threads:   Declare, Assemble, Deliver and the Fail functions may be called from any thread once Attach was; all else
// is the data thread's. Locks: mutex_ guards gone_.
#ifndef PTPATHWAYS_WORKER_INCOMING_H_
#define PTPATHWAYS_WORKER_INCOMING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/host_memory.h"
#include "csrc/base/status.h"
#include "csrc/base/strided.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/pjrt/client.h"
#include "csrc/worker/early_transfers.h"

namespace pathways::worker {

inline constexpr uint32_t kFromClient = UINT32_MAX;

class Incoming : public dataplane::DataSink {
 public:
  // Called once, before traffic.
  void Attach(dataplane::DataPlane* data) { data_ = data; }

  // What hosts are called, by number; before anything is declared to come from them.
  void SetHosts(std::vector<std::string> names);

  // Bytes under `key` fill `buffer`. `from_host` is the sender, or kFromClient.
  void Declare(uint64_t key, std::shared_ptr<pjrt::AsyncBuffer> buffer, uint32_t from_host);
  // A buffer made out of several transfers, each of which fills a box of it.
  struct Piece {
    uint64_t key;
    uint32_t from_host;
    BoxView box;
  };
  void Assemble(std::vector<Piece> pieces, std::shared_ptr<pjrt::AsyncBuffer> buffer);
  // Bytes of this host itself, as if they had been sent; `owner` keeps them readable. kDeclared: their buffer was
  // declared before, so if it is not there any more nobody wants them.
  enum class When { kAnyTime, kDeclared };
  void Deliver(uint64_t key, std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
               When when = When::kAnyTime);
  void DeliverFailure(uint64_t key, Status status, When when = When::kAnyTime);
  // Called on the data thread before a buffer is poisoned by what another process said.
  void OnFailure(std::function<void(const Status&)> listener) { on_failure_ = std::move(listener); }
  // The buffer of these bytes was refused: they are let go as they come, and their sender is told to stop.
  void Refuse(uint64_t key, uint32_t from_host, Status status);
  // The host is lost, for good: also what is declared later.
  void FailFromHost(uint32_t host, Status status);
  // Also what still comes for it.
  void FailOfClient(uint32_t client, Status status, uint64_t session = 0);
  bool IsGone(uint32_t client) const;

  // On the data thread: visit(from_host, bytes received, bytes expected, since when) for all that has not come.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [key, entry] : entries_) {
      if (entry.buffer == nullptr) continue;
      visit(entry.from_host, entry.received, entry.Expected(), entry.since_ms);
    }
  }

  // Whom to tell that a transfer from here has failed (dataplane::DataSink). Constant after start.
  using SendFailedHandler = std::function<void(const std::string& peer, uint64_t key, const Status& status)>;
  void OnSendFailed(SendFailedHandler handler) { send_failed_ = std::move(handler); }
  // The sender, a host or kFromClient, has told by another way that these bytes will not come; some may nevertheless.
  void FailTransfer(uint64_t key, uint32_t from_host, Status status);

  // dataplane::DataSink
  void OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
               transport::BulkLease lease) override;
  void OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) override;
  void OnPieceLost(std::string_view peer, uint64_t key, uint64_t size, uint64_t total, const Status& status) override;
  // PERMISSION_DENIED when another peer was announced as the sender.
  Status MaySend(std::string_view peer, uint64_t key) const override;
  // A client's number, or a host's name, may have been another's before.
  void OnPeer(std::string_view peer, uint64_t session) override;
  void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) override {
    if (send_failed_) send_failed_(peer, key, status);
  }

  // For tests, on the data thread: buffers that wait for bytes or were refused, and bytes that wait for buffers.
  size_t expected() const { return entries_.size(); }
  size_t unannounced() const { return early_.size(); }
  uint64_t unannounced_bytes(const std::string& peer) const { return early_.bytes_of(peer); }

 private:
  struct Assembly {
    std::shared_ptr<pjrt::AsyncBuffer> buffer;
    // Where pieces are put together: the buffer's own memory, or `staging` where that is out of reach. Null: every
    // piece is one run of bytes in the buffer and is transferred there.
    std::byte* memory = nullptr;
    HostMemory staging;
    size_t pieces_left = 0;
    bool failed = false;
  };
  struct Entry {
    std::shared_ptr<pjrt::AsyncBuffer> buffer;  // null: refused
    uint32_t from_host = kFromClient;
    uint64_t received = 0;
    std::shared_ptr<Assembly> assembly;  // null: the transfer is the whole buffer
    BoxView box;
    uint64_t run_offset = 0;  // of the box in the buffer, where pieces are transferred
    int64_t since_ms = NowMs();
    Status refused = OkStatus();
    bool resumed = false;  // pieces that were on their way before that come twice
    uint64_t Expected() const;
  };
  // OK when `peer` (empty: this host itself) is what `from_host` is called, or the client whose key this is.
  Status CheckSender(std::string_view peer, uint64_t key, uint32_t from_host) const;
  // Whose transfers under the key are: as peers are called that connect to this host. Empty if nobody is.
  std::string SenderOf(uint64_t key, uint32_t from_host) const;
  void Enter(uint64_t key, Entry entry);
  void TakeEarly(uint64_t key, std::vector<EarlyTransfers::Item> early);
  void Complete(const std::shared_ptr<Assembly>& assembly);
  void Take(uint64_t key, Entry& entry, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
            transport::BulkLease lease, std::shared_ptr<const void> owner);
  // Copies bytes into the buffer at `offset`; `last`: these complete it.
  void Put(const std::shared_ptr<pjrt::AsyncBuffer>& buffer, std::span<const std::byte> bytes, uint64_t offset,
           bool last, transport::BulkLease lease, std::shared_ptr<const void> owner);
  void Fail(uint64_t key, const Status& status);
  // As Fail, when more of its bytes may come.
  void FailAndRefuse(uint64_t key, const Status& status);
  // As that, when `seen` bytes of the `total` have come or were lost.
  void FailWith(uint64_t key, const Status& status, uint64_t seen, uint64_t total);
  template <typename Predicate>
  void FailWhere(Predicate predicate, const Status& status);

  dataplane::DataPlane* data_ = nullptr;
  std::function<void(const Status&)> on_failure_;  // constant after start
  SendFailedHandler send_failed_;
  // Owned by the data thread:
  std::unordered_map<uint64_t, Entry> entries_;
  EarlyTransfers early_;
  std::unordered_map<uint32_t, Status> lost_;  // hosts
  std::vector<std::string> host_names_;
  std::unordered_map<std::string, uint64_t> sessions_;  // the latest of each caller

  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, uint64_t> gone_ PW_GUARDED_BY(mutex_);  // clients and their latest sessions
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_INCOMING_H_
