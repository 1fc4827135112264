// Lines: which connection speaks for which member, and what it has not taken yet (transport/line.h). To ClusterState a
// member is one Connection ("line/<n>") from its HELLO to its end, whatever becomes of the connections below.
//
// A member's HELLO brings the number and the secret of its line. A connection that shows both later, with the key that
// the first one came with, speaks for the member from then on, and no earlier one does. A connection that closed is no
// loss yet: the member may come back in time, unless its process is gone (transport::Lifeline). Its silence is
// ClusterState's concern.
//
// A pure state machine: messages in, and what is to be sent out; time is given. Ownership: owned by Controller.
// Threads: none inside; the owner's lock guards it.
#ifndef PTPATHWAYS_CONTROLLER_LINES_H_
#define PTPATHWAYS_CONTROLLER_LINES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/cluster_state.h"
#include "csrc/transport/line.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

class Lines {
 public:
  // What names of members begin with, and no routing id may.
  static constexpr std::string_view kPrefix = "line/";
  // Beyond these a member that does not take what it is sent is given up.
  static constexpr transport::LineLimits kClientLimits{1 << 16, size_t{64} << 20};
  static constexpr transport::LineLimits kWorkerLimits{1 << 16, size_t{1} << 30};

  struct Parcel {
    std::string route;  // the connection it goes by
    transport::Frames frames;
  };
  using Parcels = std::vector<Parcel>;

  // `process_space`: this process's, by whose ids those of members are judged.
  explicit Lines(std::string process_space) : process_space_(std::move(process_space)) {}

  struct Verdict {
    std::optional<Connection> from;  // whose message ClusterState is to have; none: nobody's
    Status refusal;                  // not OK: what to answer instead
    bool opened = false;             // it is the HELLO of a new member
  };
  // A message of `bytes` bytes of connection `route`, whose key makes it `sender` (Frame::sender; of a
  // HELLO or HEARTBEAT, else of no matter).
  Verdict Take(std::string_view route, std::string_view sender, const wire::Head& head, size_t bytes, Parcels& out,
               transport::Link::Dropped* dropped);
  // The connection ended. False when it has never spoken for a member.
  bool OnClosed(std::string_view route, int64_t now_ms);
  // Every connection ended, and not because of its member: it may be stopped, so its silence is what counts.
  void CloseAll(int64_t now_ms);
  // The processes of members whose connection closed, as far as their ids mean something here.
  std::vector<uint64_t> ProcessesInDoubt() const;
  // To be called regularly: members whose connection closed and who are gone, and why. `is_gone`: of ProcessesInDoubt.
  std::vector<std::pair<Connection, std::string>> TakeGone(int64_t now_ms,
                                                           const std::function<bool(uint64_t pid)>& is_gone);

  // A message for a member: numbered, kept, and to be sent if there is a connection. An error: too much is kept.
  Status Send(const Connection& member, transport::Frames message, Parcels& out);
  // A heartbeat for it.
  void Beat(const Connection& member, Parcels& out);
  // Members by name, and whether each is a worker.
  std::vector<std::pair<Connection, bool>> Members() const;
  // All have been sent what they are to take before AllTook.
  void Mark();
  // Whether those that were members at the last Mark, and still are, have taken all that they had been sent by then.
  bool AllTook() const;
  // How many messages it was sent, arrived or not; 0 for one that has no line.
  uint64_t Sent(const Connection& member) const;
  // It is none any more.
  void Drop(const Connection& member);

  // Whether this connection speaks for a member now.
  bool Speaks(std::string_view route) const;

 private:
  struct Member {
    Member(uint64_t number, transport::LineLimits limits) : line(number, limits) {}
    Connection name;
    std::string route;   // the connection that speaks for it; empty: none does
    std::string sender;  // as what it was admitted
    std::string secret;
    uint64_t pid = 0;            // 0: not of our process space
    uint64_t beats = 0;          // the latest heartbeat's count
    bool hears_nothing = false;  // as that said
    transport::Line line;
    transport::Lifeline lifeline;
    bool is_worker = false;
    uint64_t marked = 0;  // messages that it had been sent at the last Mark
    bool dropped = false;
  };
  using MemberPtr = std::shared_ptr<Member>;

  bool Close(std::string_view route, int64_t now_ms, bool by_us);
  Verdict OnHello(std::string_view route, std::string_view sender, const wire::Hello& hello, const Member* speaks,
                  Parcels& out, transport::Link::Dropped* dropped);
  // PERMISSION_DENIED unless a connection with this key and secret is the member's.
  static Status CheckOwner(const Member& member, std::string_view sender, std::string_view secret);
  // The connection speaks for the member from now on.
  Status Resume(const MemberPtr& member, std::string_view route, uint64_t received, Parcels& out,
                transport::Link::Dropped* dropped);
  static void Tell(Member& member, bool again, Parcels& out);

  const std::string process_space_;
  std::unordered_map<uint64_t, MemberPtr> by_number_;
  std::unordered_map<Connection, MemberPtr> by_name_;
  std::unordered_map<std::string, MemberPtr> by_route_;  // until the connection ends, whether it still speaks or not
  std::unordered_map<Connection, MemberPtr> closed_;     // those without a connection, by name
  uint64_t next_ = 1;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_LINES_H_
