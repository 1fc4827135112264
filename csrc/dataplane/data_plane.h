// DataPlane: a process's bulk traffic, worker to worker and between client and worker, apart from all control messages.
//
// One ROUTER socket and one thread ("pw-data"). Hosts bind; whoever has bytes for a host connects. A connection made
// here is called "to/<host name>"; one that came in is called by the name in the caller's identity (peer_names.h), and
// bytes may go both ways on either. A peer is lost when the controller says so. This class starts and stops the parts,
// and hands each message to the one that it is for:
//
//   EarlyMessages  what comes before this host has joined its cluster (early_messages.h)
//   PeerLinks      who is reached, and numbered messages, which outlive connections (peer_links.h)
//   Transfers      bytes, the answers to them and the news of failures (transfers.h)
//
// Ownership: borrows the sink, which must outlive Stop. Borrows the memory of each Send until its `done`.
// Threads:   every method may be called from any thread. The sink and most `done` callbacks run on the data thread.
// Locks:     PeerLinks::mutex, of the parts; handler_mutex_, a leaf, guards the handler of messages.
#ifndef PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
#define PTPATHWAYS_DATAPLANE_DATA_PLANE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/strided.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/dataplane/data_sink.h"
#include "csrc/dataplane/early_messages.h"
#include "csrc/dataplane/peer_links.h"
#include "csrc/dataplane/transfers.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/message.h"

namespace pathways::dataplane {

struct DataPlaneOptions {
  Membership membership;      // without a cluster: Join follows
  std::string machine;        // transport::MachineToken() of this process
  std::string bind_endpoint;  // empty: this process only calls others
  transport::CurveOptions curve;
  // A transfer to a peer that has been silent for so long has failed.
  std::chrono::milliseconds transfer_timeout{60'000};
  // A connection on which nothing comes back for so long is made anew.
  std::chrono::milliseconds connection_timeout{5'000};
  // Of what one peer has not taken (unread.h).
  PeerLimits limits{};
  // For devices that read what comes in shared memory; null: they need not.
  std::shared_ptr<Pinner> pinner;
};

// DataPlaneOptions::transfer_timeout as the environment's PTPATHWAYS_TRANSFER_TIMEOUT_S says it; `text` null: not at
// all.
Result<std::chrono::milliseconds> TransferTimeoutOf(const char* text);

class DataPlane : private transport::SocketHandler {
 public:
  static Result<std::unique_ptr<DataPlane>> Start(DataPlaneOptions options, DataSink* sink);
  ~DataPlane() override;

  // Connections are admitted and made with these keys from now on, and those that there are made anew; what was under
  // way goes on. Does nothing for a process that has no keys.
  void Rotate(transport::CurveOptions curve);

  // Where others connect; empty when not bound.
  const std::string& endpoint() const { return endpoint_; }

  // A host learns its cluster when it joins, after it has told where it listens. Once, before any transfer.
  void Join(Membership membership);

  // What this process must call itself at a host, before ConnectTo. In a cluster only.
  void SetIdentityAt(const std::string& host, std::string identity) { links_.SetIdentityAt(host, std::move(identity)); }
  // Makes "to/<host>" reachable. Idempotent. `session`: whose segments may come from there; 0: nobody's.
  Status ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                   uint64_t session = 0) {
    return links_.ConnectTo(host, endpoint, machine, session);
  }
  static std::string PeerOfHost(const std::string& host) { return PeerNames::OfHost(host); }
  static std::string PeerOfClient(uint32_t client) { return PeerNames::OfClient(client); }

  // Sends the bytes, at least one, under `key`. A peer which has not called yet is waited for until it does, is lost,
  // or the transfer's time is over. To a peer that was lost nothing is sent: `done` gets the reason at once. So it does
  // beyond PeerLimits::transfers, and the sink is told, too.
  void Send(const std::string& peer, uint64_t key, ByteSource source, std::function<void(const Status&)> done) {
    transfers_.Send(peer, key, std::move(source), std::move(done));
  }
  // The transfer `key`, pieces of which were deferred (BulkLease::Defer), is expected now, or with an error not wanted.
  void Resume(const std::string& peer, uint64_t key, Status status = OkStatus()) {
    transfers_.Resume(peer, key, std::move(status));
  }
  // Tells the receiver of `key` that its bytes will never come; through the sink if too much waits for it.
  void SendFailure(const std::string& peer, uint64_t key, const Status& status) {
    transfers_.SendFailure(peer, key, status);
  }
  // Ends every transfer to and from this peer, and forgets it. `session`: of the peer that is lost, whose name nobody
  // has any more; a later one of this name stays. 0: whichever it is.
  void PeerLost(const std::string& peer, const Status& status, uint64_t session = 0) {
    if (links_.Lose(peer, status, session)) transfers_.PeerLost(peer, status);
  }
  // Messages of another room beside the transfers, in order between two hosts. Received ones (COLLECTIVE_*) go to the
  // handler, on the data thread; the frames may be moved from, the head is frame 0. Those that come before a handler is
  // set are refused.
  using MessageHandler =
      std::function<Status(std::string_view peer, const wire::Head& head, transport::Frames& frames)>;
  void HandleMessages(MessageHandler handler);
  Status SendMessage(std::string_view peer, transport::Frames frames) {
    return links_.Transmit(peer, {0, 0, std::move(frames)});
  }
  // Runs a task on the data thread.
  void Post(std::function<void()> task) { reactor_->Post(std::move(task)); }
  // A repeating task on the data thread.
  void Every(std::chrono::milliseconds period, std::function<void()> task) {
    reactor_->AddTimer(period, period, std::move(task));
  }
  // To whom this process is sending just now, and how many transfers.
  std::vector<std::pair<std::string, uint64_t>> open_transfers() const { return transfers_.open(); }
  // Bytes that are in memory for this peer, which has not taken them.
  uint64_t unread_bytes(const std::string& peer) const { return links_.unread_bytes(peer); }
  // Transfers from here in this state, or that ended so.
  uint64_t transfers(TransferState state) const { return transfers_.count(state); }

  void Stop();

 private:
  DataPlane(const DataPlaneOptions& options, DataSink* sink, std::shared_ptr<transport::Socket> socket,
            std::string endpoint, std::unique_ptr<transport::Reactor> reactor);
  // transport::SocketHandler
  void OnMessage(transport::Socket& socket, std::string_view route, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  Status HandleMessage(std::string_view route, transport::Frames& frames);
  Status HandleHello(std::string_view route, const wire::Head& head, const transport::Frame& frame);
  void OnTick();
  void DropStrangers();
  // Listens with the keys of now. False: not yet.
  bool ListenAgain();

  const bool has_keys_;
  DataSink* const sink_;
  const std::string endpoint_;
  const std::shared_ptr<transport::Socket> socket_;
  const std::unique_ptr<transport::Reactor> reactor_;
  PeerLinks links_;
  Transfers transfers_;

  std::mutex handler_mutex_;
  std::shared_ptr<const MessageHandler> handler_ PW_GUARDED_BY(handler_mutex_);

  // Used by the data thread only:
  bool joined_ = false;
  EarlyMessages early_;         // until then
  bool listens_again_ = false;  // is to, and could not yet
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
