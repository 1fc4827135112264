// DataPlane: a process's bulk traffic, worker to worker and between client and worker, apart from all control messages.
//
// One ROUTER socket and one thread ("pw-data"). Hosts bind; whoever has bytes for a host connects. A connection made
// here is called "to/<host name>"; one that came in is called by the caller's name ("c/<client>" or "w/<host>"), and
// bytes may go both ways on either. On the wire both have names that cannot be guessed (wire/identity.h), so that
// nobody takes a connection over: a caller has its identity from the controller, and is heard once it has said
// PEER_HELLO.
//
// Ownership: borrows the sink, which must outlive Stop. Borrows the memory of each Send until its `done`.
// Threads:   every method may be called from any thread. The sink and most `done` callbacks run on the data thread.
// Locks:     mutex_ guards the tables of peers; never held across a callback.
#ifndef PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
#define PTPATHWAYS_DATAPLANE_DATA_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/transport/bulk.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/bodies.h"

namespace pathways::dataplane {

// What the controller's WELCOME says of a peer's data connections.
struct Membership {
  std::string cluster;
  std::string identity;  // of a process outside a cluster, among others of its group: "w/<name>"
  std::string key;       // hosts only: checks the identities of callers; empty: a group, in which names are believed
  uint64_t session = 0;
};

struct DataPlaneOptions {
  Membership membership;      // without a cluster: Join follows
  std::string machine;        // transport::MachineToken() of this process
  std::string bind_endpoint;  // empty: this process only calls others
  transport::CurveOptions curve;
};

class DataSink {
 public:
  virtual ~DataSink() = default;
  // Bytes [offset, offset + bytes.size()) of transfer `key`; they are readable while `lease` lives. Drop the lease with
  // an error to refuse the rest.
  virtual void OnBytes(uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
                       transport::BulkLease lease) = 0;
  // The sender gives up on transfer `key`.
  virtual void OnTransferFailed(uint64_t key, const Status& status) = 0;
  // OK unless `peer` must not send under `key`. Called before each of the two above.
  virtual Status MaySend(std::string_view /*peer*/, uint64_t /*key*/) const { return OkStatus(); }
  // A caller has said who it is; before anything else of it.
  virtual void OnPeer(std::string_view /*peer*/, uint64_t /*session*/) {}
};

class DataPlane : private transport::SocketHandler, private transport::BulkEmitter, private transport::BulkSink {
 public:
  static Result<std::unique_ptr<DataPlane>> Start(DataPlaneOptions options, DataSink* sink);
  ~DataPlane() override;

  // Where others connect; empty when not bound.
  const std::string& endpoint() const { return endpoint_; }

  // A host learns its cluster when it joins, after it has told where it listens. Once, before any transfer.
  void Join(Membership membership);

  // Makes "to/<host>" reachable. Idempotent. `session`: whose segments may come from there; 0: nobody's.
  Status ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine,
                   uint64_t session = 0);
  static std::string PeerOfHost(const std::string& host) { return "to/" + host; }
  static std::string PeerOfClient(uint32_t client) { return "c/" + std::to_string(client); }

  // Sends `size` > 0 bytes under `key`. A peer which has not called yet is waited for until it does or is lost.
  void Send(const std::string& peer, uint64_t key, const void* data, uint64_t size,
            std::function<void(const Status&)> done);
  // Tells the receiver of `key` that its bytes will never come.
  void SendFailure(const std::string& peer, uint64_t key, const Status& status);
  // Ends every transfer to and from this peer, and forgets it.
  void PeerLost(const std::string& peer, const Status& status);
  // Messages of another room beside the transfers, in order between two hosts. Received ones (COLLECTIVE_*) go to the
  // handler, on the data thread; the frames may be moved from, the head is frame 0. Those that come before a handler is
  // set are refused.
  using MessageHandler =
      std::function<Status(std::string_view peer, const wire::Head& head, transport::Frames& frames)>;
  void HandleMessages(MessageHandler handler);
  Status SendMessage(std::string_view peer, transport::Frames frames);
  // Runs a task on the data thread.
  void Post(std::function<void()> task) { reactor_->Post(std::move(task)); }
  // A repeating task on the data thread.
  void Every(std::chrono::milliseconds period, std::function<void()> task);

  void Stop();

 private:
  struct Peer {
    bool same_machine = false;
    std::string endpoint;  // where we connected; empty for a caller
    std::string route;     // what the socket calls it
    uint64_t session = 0;  // owner of the segments that it may name
  };
  struct Waiting {
    uint64_t key;
    const void* data;
    uint64_t size;
    std::function<void(const Status&)> done;
    Status failure;  // not OK: a SendFailure
  };

  DataPlane(DataPlaneOptions options, DataSink* sink);
  void Deliver(const std::string& peer, bool same_machine, Waiting item);
  // transport::SocketHandler
  void OnMessage(transport::Socket& socket, std::string_view peer, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  Status HandleMessage(std::string_view route, transport::Frames& frames);
  Status HandleHello(std::string_view route, const wire::Head& head, const transport::Frame& frame);
  Status HandleData(std::string_view peer, uint64_t session, const wire::Head& head, transport::Frames& frames);
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
  std::unique_ptr<transport::BulkSender> sender_;
  std::unique_ptr<transport::BulkReceiver> receiver_;

  std::mutex mutex_;
  // Guarded by mutex_:
  std::unordered_map<std::string, Peer> peers_;
  std::unordered_map<std::string, std::string> names_;  // of peers, by route
  std::unordered_map<std::string, uint64_t> sessions_;  // the latest of each caller, gone or not
  uint64_t next_route_ = 1;
  std::unordered_map<std::string, std::vector<Waiting>> waiting_;  // for peers that have not called yet
  std::vector<std::pair<std::string, transport::Frames>> early_;   // what came before Join
  uint64_t early_bytes_ = 0;
  std::shared_ptr<const MessageHandler> handler_;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_DATA_PLANE_H_
