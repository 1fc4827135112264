// DataPlane: a process's bulk traffic, worker to worker and between client and worker, apart from all control messages.
//
// One ROUTER socket and one thread ("pw-data"). Hosts bind; whoever has bytes for a host connects. A connection made
// here is called "to/<host name>"; one that came in is called by the name in the caller's identity ("c/<client>" or
// "w/<host>"; wire/identity.h), and bytes may go both ways on either. A connection that is lost is made again by its
// caller, and what was under way is sent again (link.h); a peer is lost when the controller says so. Each transfer ends
// (transfer_book.h). What is kept for a peer that does not read has limits (unread.h).
//
// Ownership: borrows the sink, which must outlive Stop. Borrows the memory of each Send until its `done`.
// Threads:   every method may be called from any thread. The sink and most `done` callbacks run on the data thread.
// Locks:     mutex_ guards what is known of peers, and is held while a message is sent, so that messages leave in the
//            order of their numbers (then the socket's lock is taken); never across a callback.
#ifndef PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
#define PTPATHWAYS_DATAPLANE_DATA_PLANE_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/log_limit.h"
#include "csrc/base/status.h"
#include "csrc/base/strided.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/dataplane/transfer_book.h"
#include "csrc/dataplane/unread.h"
#include "csrc/transport/bulk.h"
#include "csrc/transport/link.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/identity.h"

namespace pathways::dataplane {

using transport::Link;

// What the controller's WELCOME says of a peer's data connections.
struct Membership {
  std::string cluster;
  std::string identity;  // of a process outside a cluster, among others of its group: "w/<name>"
  std::string key;       // hosts only: checks the identities of callers. In a group, without a session, names are
                         // believed
  uint64_t session = 0;
};

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

class DataSink {
 public:
  virtual ~DataSink() = default;
  // Bytes [offset, offset + bytes.size()) of transfer `key`; they are readable while `lease` lives. Drop the lease with
  // an error to refuse the rest.
  virtual void OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total,
                       std::span<const std::byte> bytes, transport::BulkLease lease) = 0;
  // The sender, `peer`, gives up on transfer `key`.
  virtual void OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) = 0;
  // `size` bytes of `total` came that could not be read; the sender is told. Others of the transfer may still come.
  virtual void OnPieceLost(std::string_view peer, uint64_t key, uint64_t /*size*/, uint64_t /*total*/,
                           const Status& status) {
    OnTransferFailed(peer, key, status);
  }
  // OK unless `peer` must not send under `key`. Called before each of the three above.
  virtual Status MaySend(std::string_view /*peer*/, uint64_t /*key*/) const { return OkStatus(); }
  // A caller of a new session has said who it is; before anything else of it.
  virtual void OnPeer(std::string_view /*peer*/, uint64_t /*session*/) {}
  // The transfer `key` that this process was sending has failed, and its receiver does not answer: it must be told by
  // another way.
  virtual void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) = 0;
};

class DataPlane : private transport::SocketHandler, private transport::BulkEmitter, private transport::BulkSink {
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
  void SetIdentityAt(const std::string& host, std::string identity);
  // Makes "to/<host>" reachable. Idempotent. `session`: whose segments may come from there; 0: nobody's.
  Status ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                   uint64_t session = 0);
  static std::string PeerOfHost(const std::string& host) { return "to/" + host; }
  static std::string PeerOfClient(uint32_t client) { return "c/" + std::to_string(client); }

  // Sends the bytes, at least one, under `key`. A peer which has not called yet is waited for until it does, is lost,
  // or the transfer's time is over. To a peer that was lost nothing is sent: `done` gets the reason at once. So it does
  // beyond PeerLimits::transfers, and the sink is told, too.
  void Send(const std::string& peer, uint64_t key, ByteSource source, std::function<void(const Status&)> done);
  // The transfer `key`, pieces of which were deferred (BulkLease::Defer), is expected now, or with an error not wanted.
  void Resume(const std::string& peer, uint64_t key, Status status = OkStatus());
  // Tells the receiver of `key` that its bytes will never come; through the sink if too much waits for it.
  void SendFailure(const std::string& peer, uint64_t key, const Status& status);
  // Ends every transfer to and from this peer, and forgets it. `session`: of the peer that is lost, whose name nobody
  // has any more; a later one of this name stays. 0: whichever it is.
  void PeerLost(const std::string& peer, const Status& status, uint64_t session = 0);
  // Messages of another room beside the transfers, in order between two hosts. Received ones (COLLECTIVE_*) go to the
  // handler, on the data thread; the frames may be moved from, the head is frame 0. Those that come before a handler is
  // set are refused.
  using MessageHandler =
      std::function<Status(std::string_view peer, const wire::Head& head, transport::Frames& frames)>;
  void HandleMessages(MessageHandler handler);
  Status SendMessage(std::string_view peer, transport::Frames frames) {
    return Transmit(peer, {0, 0, std::move(frames)});
  }
  // Runs a task on the data thread.
  void Post(std::function<void()> task) { reactor_->Post(std::move(task)); }
  // A repeating task on the data thread.
  void Every(std::chrono::milliseconds period, std::function<void()> task);
  // To whom this process is sending just now, and how many transfers.
  std::vector<std::pair<std::string, uint64_t>> open_transfers() const;
  // Bytes that are in memory for this peer, which has not taken them.
  uint64_t unread_bytes(const std::string& peer) const;
  // Transfers from here in this state, or that ended so.
  uint64_t transfers(TransferState state) const;

  void Stop();

 private:
  struct Waiting {
    uint64_t key;
    ByteSource source;
    std::function<void(const Status&)> done;
    Status failure = OkStatus();  // not OK: a SendFailure
  };
  struct Peer {
    explicit Peer(uint64_t number) : link(number) {}
    bool reachable = false;  // we connected to it, or it has said hello
    bool same_machine = false;
    std::string endpoint;  // where we connected; empty for a caller
    std::string route;     // what the socket calls it
    std::string identity;  // what we call ourselves there, if we connected
    int doubted = 0;       // ticks for which it is asked whether it is there, as a connection has ended
    uint64_t session = 0;  // owner of the segments that it may name
    Link link;
    Unread unread;
    bool full = false;        // nothing numbered of it is taken, and that was said
    bool hung_up_on = false;  // since the last tick
    Answers answers;
    TransferBook transfers;
    std::vector<Waiting> waiting;  // until it is reachable
  };
  struct Gone {
    Status status;
    uint64_t number;  // of its link, if it had one
  };

  DataPlane(DataPlaneOptions options, DataSink* sink);
  void Deliver(const std::string& peer, bool same_machine, Waiting item);
  // Sends a message that arrives once, whatever becomes of the connection, as long as neither end is lost.
  Status Transmit(std::string_view peer, Link::Kept message);
  Peer& PeerEntry(const std::string& name) PW_REQUIRES(mutex_);
  Status GoneStatus(const std::string& name) const PW_REQUIRES(mutex_);
  Status SayHello(const Peer& peer, bool anew) PW_REQUIRES(mutex_);
  std::string NewRoute() PW_REQUIRES(mutex_);
  // For a peer that this process called, when there is no connection to it and none in the making.
  void CallAgain(const std::string& name, Peer& peer) PW_REQUIRES(mutex_);
  void SaySeen(Peer& peer, bool lost) PW_REQUIRES(mutex_);
  void SendAgain(Peer& peer) PW_REQUIRES(mutex_);
  // The same, now or with the next tick. `hello`: it does not know this end's link.
  void AnswerWord(Peer& peer, bool hello, bool lost) PW_REQUIRES(mutex_);
  void AnswerAgain(Peer& peer) PW_REQUIRES(mutex_);
  // Its connection is made anew, so that libzmq lets go of what it holds for it. On the data thread.
  void HangUp(const std::string& peer);

  Status OnPeerHello(std::string_view route, const wire::PeerHello& hello, const transport::Frame& frame);
  // Who says hello by this route: PERMISSION_DENIED for somebody else.
  Result<wire::Identity> IdentityOf(std::string_view route, const transport::Frame& frame);
  Status OnPeerSeen(const std::string& peer, const wire::PeerSeen& seen);
  Status OnRelease(const std::string& peer, const wire::Release& release);
  Status OnResume(const std::string& peer, const wire::Resume& resume);
  Status OnData(const std::string& peer, uint64_t session, const wire::Head& head, transport::Frames& frames);
  // Whether a numbered message is to be handled.
  Result<bool> TakeNumbered(const std::string& peer, uint64_t sequence);
  void OnTick();
  void Refused(std::string_view peer, const Status& status);
  // transport::SocketHandler
  void OnMessage(transport::Socket& socket, std::string_view peer, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  Status HandleMessage(std::string_view peer, transport::Frames& frames);
  void DropStrangers();
  // Listens with the keys of now. False: not yet.
  bool ListenAgain();
  // transport::BulkEmitter
  Status EmitPiece(std::string_view peer, const transport::BulkPiece& piece, transport::Frame payload) override;
  Status EmitRelease(std::string_view peer, const transport::BulkRelease& release) override;
  // transport::BulkSink
  void OnBulk(std::string_view peer, const transport::BulkPiece& piece, std::span<const std::byte> bytes,
              transport::BulkLease lease) override;

  const DataPlaneOptions options_;
  Membership membership_;  // set before traffic, by Join
  DataSink* const sink_;
  std::string endpoint_;
  std::shared_ptr<transport::Socket> socket_;
  std::unique_ptr<transport::Reactor> reactor_;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  bool stopped_ PW_GUARDED_BY(mutex_) = false;
  std::shared_ptr<transport::BulkSender> sender_ PW_GUARDED_BY(mutex_);      // null before Join
  std::shared_ptr<transport::BulkReceiver> receiver_ PW_GUARDED_BY(mutex_);  // the same
  std::unordered_map<std::string, Peer> peers_ PW_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> names_ PW_GUARDED_BY(mutex_);  // of peers, by route
  // By caller, gone or not: the first session that it may have.
  std::unordered_map<std::string, uint64_t> sessions_ PW_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::string> identities_ PW_GUARDED_BY(mutex_);  // of this process, by host
  uint64_t next_route_ PW_GUARDED_BY(mutex_) = 1;
  std::unordered_map<std::string, Gone> gone_ PW_GUARDED_BY(mutex_);
  std::array<uint64_t, 4> ended_ PW_GUARDED_BY(mutex_){};  // transfers to peers that are gone, by how they ended
  std::vector<std::pair<std::string, transport::Frames>> early_ PW_GUARDED_BY(mutex_);  // what came before Join
  uint64_t early_bytes_ PW_GUARDED_BY(mutex_) = 0;
  std::mt19937_64 numbers_ PW_GUARDED_BY(mutex_){std::random_device{}()};
  std::shared_ptr<const MessageHandler> handler_ PW_GUARDED_BY(mutex_);

  // Used by the data thread only:
  std::chrono::steady_clock::time_point last_tick_{};
  bool listens_again_ = false;  // is to, and could not yet
  LogLimit log_;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
