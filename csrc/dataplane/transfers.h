// Transfers: the bulk bytes to and from each peer, from the moment that they are there to be sent until they are over.
//
// A transfer to a peer that is not reached waits until it is. Then transport::BulkSender cuts it into pieces, and
// PeerLinks carries them, the answers to them, and the news of failures. Each transfer from here is in its peer's book
// (transfer_book.h) and ends once: done, refused, with its peer, or by a limit.
//
// Ownership: borrows the links and the sink, and the memory of each Send until its `done`.
// Threads:   any, except functions marked as the data thread's.
// Locks:     PeerLinks::mutex guards the tables; never held across a callback.
#ifndef PTPATHWAYS_DATAPLANE_TRANSFERS_H_
#define PTPATHWAYS_DATAPLANE_TRANSFERS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/strided.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/dataplane/data_sink.h"
#include "csrc/dataplane/peer_links.h"
#include "csrc/dataplane/transfer_book.h"
#include "csrc/transport/bulk.h"

namespace pathways::dataplane {

struct TransfersOptions {
  std::chrono::milliseconds timeout;  // of one to a silent peer
  PeerLimits limits{};
  std::shared_ptr<Pinner> pinner;
  // Asks that Pump be called soon on the data thread. As BulkSender's `schedule`.
  std::function<void()> pump_soon;
};

class Transfers : private transport::BulkEmitter, private transport::BulkSink {
 public:
  using Done = std::function<void(const Status&)>;
  using Time = TransferBook::Time;

  Transfers(TransfersOptions options, PeerLinks& links, DataSink* sink)
      : options_(std::move(options)), links_(links), sink_(sink) {}

  // Once, before all that follows. `session`: of this process, or 0.
  void Join(const std::string& cluster, uint64_t session);
  // As those of DataPlane.
  void Send(const std::string& peer, uint64_t key, ByteSource&& source, Done&& done);
  void Resume(const std::string& peer, uint64_t key, Status status);
  void SendFailure(const std::string& peer, uint64_t key, const Status& status);
  std::vector<std::pair<std::string, uint64_t>> open() const;
  uint64_t count(TransferState state) const;
  // The links have lost this peer: its transfers end.
  void PeerLost(const std::string& peer, const Status& status);
  // Ends what waits, when the links have stopped and nothing arrives any more.
  void Stop();

  // --- On the data thread.
  // The peer has said hello: what waits for it goes. What a peer has forgotten (PeerLinks::Greeting) ends first.
  void OnHello(const PeerLinks::Greeting& greeting);
  Status OnData(const PeerLinks::Sender& from, const wire::Head& head, transport::Frames& frames);
  Status OnRelease(const std::string& peer, const wire::Release& release);
  Status OnResume(const std::string& peer, const wire::Resume& resume);
  // Ends what has waited too long.
  void OnTick(Time now);
  void Pump();

 private:
  struct Waiting {
    uint64_t key;
    ByteSource source;
    Done done;
    Status failure = OkStatus();  // not OK: a SendFailure
  };
  struct Peer {
    TransferBook book;
    std::vector<Waiting> waiting;  // until it is reached
  };

  // `sender`: null when this process has stopped.
  void Deliver(transport::BulkSender* sender, const std::string& peer, bool same_machine, Waiting& item);
  // transport::BulkEmitter
  Status EmitPiece(std::string_view peer, const transport::BulkPiece& piece, transport::Frame payload) override;
  Status EmitRelease(std::string_view peer, const transport::BulkRelease& release) override;
  // transport::BulkSink
  void OnBulk(std::string_view peer, const transport::BulkPiece& piece, std::span<const std::byte> bytes,
              transport::BulkLease lease) override;

  const TransfersOptions options_;
  PeerLinks& links_;
  DataSink* const sink_;

  // Set by Join, and constant afterwards:
  std::unique_ptr<transport::BulkReceiver> receiver_;
  bool in_cluster_ = false;  // where each segment has an owner

  std::shared_ptr<transport::BulkSender> sender_ PW_GUARDED_BY(links_.mutex);  // null before Join and after Stop
  ByName<Peer> peers_ PW_GUARDED_BY(links_.mutex);
  std::array<uint64_t, 4> ended_ PW_GUARDED_BY(links_.mutex){};  // with peers that are gone, by how they ended

  // Used by the data thread only:
  Time last_tick_{};
  Time awake_since_{};  // this process was stopped before, and heard nobody
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_TRANSFERS_H_
