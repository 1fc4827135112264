// PeerLinks: whom this process reaches on data connections, and the messages to and from each (peer_link.h).
//
// A peer is reached from the moment that this process has called it, or that it has called and said hello, until it is
// lost. A connection that is lost is made again by its caller; then both ends say how far they got, and what is missing
// is sent again. What the numbered messages mean is not known here.
//
// Ownership: shares the socket.
// Threads:   any, except functions marked as the data thread's.
// Locks:     `mutex` guards what is known of peers, and is held while a message is sent, so that messages leave in the
//            order of their numbers (then the socket's lock is taken). Transfers guards its tables with it, too:
//            whether a peer is reached and what waits until it is must not change apart.
#ifndef PTPATHWAYS_DATAPLANE_PEER_LINKS_H_
#define PTPATHWAYS_DATAPLANE_PEER_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/log_limit.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/dataplane/peer_link.h"
#include "csrc/dataplane/peer_names.h"
#include "csrc/dataplane/unread.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/message.h"

namespace pathways::dataplane {

struct PeerLinksOptions {
  std::string machine;     // transport::MachineToken() of this process
  std::string listens_at;  // empty: it only calls others
  PeerLimits limits{};
  // Asks that HangUp be called soon on the data thread. Called under the lock, so it does no more than to post that.
  std::function<void(const std::string& peer)> hang_up;
};

class PeerLinks {
 public:
  PeerLinks(PeerLinksOptions options, std::shared_ptr<transport::Socket> socket)
      : options_(std::move(options)), own_{std::move(socket), options_.machine, {}} {}

  // Once, before all that follows.
  void Join(Membership membership);
  void SetIdentityAt(const std::string& host, std::string identity);
  // As DataPlane::ConnectTo.
  Status ConnectTo(const std::string& host, const std::string& endpoint, const std::string& machine, uint64_t session);
  // Connections that this process made, but for those within the machine, are made anew.
  void CallAllAgain();
  // Sends a message that arrives once, whatever becomes of the connection, as long as neither end is lost.
  Status Transmit(std::string_view peer, Link::Kept message);
  // Forgets a peer, for this reason. `session`: as DataPlane::PeerLost; false: a later one has the name, and stays.
  bool Lose(const std::string& peer, const Status& reason, uint64_t session);
  uint64_t unread_bytes(std::string_view peer) const;
  // Nobody is reached any more. Clear, once nothing arrives, drops what is kept.
  void Stop();
  void Clear();

  // --- On the data thread.
  // What a hello meant.
  struct Greeting {
    std::string peer;
    uint64_t session = 0;
    bool fresh = false;      // of a caller: its first on this connection
    bool forgotten = false;  // it knows nothing of what it was sent: that has failed
    bool same_machine = false;
  };
  // Nothing: of a process that does not know yet that it is gone.
  Result<std::optional<Greeting>> OnHello(std::string_view route, const wire::PeerHello& hello,
                                          const transport::Frame& frame);
  Status OnSeen(std::string_view route, const wire::PeerSeen& seen);
  struct Sender {
    std::string name;
    uint64_t session = 0;  // owner of the segments that it may name
  };
  // Counts a numbered message. Nothing: it is not to be handled, as it came before or is to come again.
  Result<std::optional<Sender>> Take(std::string_view route, const wire::Header& header);
  // A connection was made, or has ended.
  void OnConnection(const transport::PeerEvent& event);
  // Tells silent peers how far we are, so that they say how far they are. `open`: who has transfers to take.
  void OnTick(const std::vector<std::pair<std::string, uint64_t>>& open);
  // The peer's connection is made anew, so that libzmq lets go of what it holds for it.
  void HangUp(const std::string& peer);
  // Whether this is the route of a peer.
  bool Knows(std::string_view route) const;
  // Logs that something of this peer was not taken.
  void Refused(std::string_view peer, const Status& status);

  // --- For Transfers, under the lock.
  mutable std::mutex mutex;
  // Why nothing is sent to the peer, which is lost or this process has stopped; OK: it may be reached, if not yet.
  Status Gone(std::string_view peer) const PW_REQUIRES(mutex);
  // Null: it is not reached. To be used under the lock only.
  PeerLink* Find(std::string_view peer) PW_REQUIRES(mutex);

 private:
  using Entry = ByName<PeerLink>::value_type;

  PeerLink& Add(const std::string& peer) PW_REQUIRES(mutex) {
    return peers_.try_emplace(peer, own_, numbers_() | 1).first->second;
  }
  // Null: nobody's route.
  Entry* AtRoute(std::string_view route) PW_REQUIRES(mutex);
  // Who sends by this route; null: it is of a connection of ours that was made anew since. PERMISSION_DENIED: nobody.
  Result<Entry*> SenderBy(std::string_view route, wire::Type type) PW_REQUIRES(mutex);
  // For a peer that this process called, when there is no connection to it and none in the making.
  void CallAgain(const std::string& name, PeerLink& peer) PW_REQUIRES(mutex);
  void Log(std::string_view peer, const std::string& text);

  const PeerLinksOptions options_;
  Membership membership_;  // set by Join, and constant afterwards
  OwnEnd own_;             // the same

  bool stopped_ PW_GUARDED_BY(mutex) = false;
  ByName<PeerLink> peers_ PW_GUARDED_BY(mutex);
  PeerNames names_ PW_GUARDED_BY(mutex);
  std::mt19937_64 numbers_ PW_GUARDED_BY(mutex){std::random_device{}()};  // of links

  LogLimit log_;  // the data thread's
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_PEER_LINKS_H_
