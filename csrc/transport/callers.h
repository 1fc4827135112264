// Callers: the connections that a listener has accepted, and which of them have yet to show that they belong. A
// listener serves strangers for a while only, and so many at a time, that nobody takes all its descriptors.
//
// libzmq cannot close one connection of a socket, so a stranger's is shut down under it, which libzmq takes for the
// other end's doing. The kernel's cookie of a connection tells it from a later one with the same descriptor.
//
// Ownership: owned by a Socket; borrows libzmq's descriptors. Threads: the socket's receiving thread only.
#ifndef PTPATHWAYS_TRANSPORT_CALLERS_H_
#define PTPATHWAYS_TRANSPORT_CALLERS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pathways::transport {

// How many callers a listener bears that have said nothing yet: who has no key cannot.
struct StrangerLimits {
  size_t per_address = 0;  // 0: any number
  size_t in_all = 0;
};
// As fits the number of descriptors that this process may have.
StrangerLimits UsualStrangerLimits();

class Callers {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Callers(StrangerLimits limits) : limits_(limits) {}

  void Accepted(int fd, bool tcp);
  // Its IP address; empty when that is not known.
  std::string Ended(int fd);
  // Its first message is there, so it has shown a key where one is asked for.
  void Spoke(int fd);
  // Hangs up on those that have been mute for longest, if there are too many. To be called when all news was told.
  void Enforce();
  // Hangs up on strangers that came before `now - grace` and of which `is_known` knows nothing.
  void DropStrangers(Clock::time_point now, Clock::duration grace, const std::function<bool(int fd)>& is_known);
  // Hangs up on one of them.
  void HangUp(int fd);

  // Callers that have said nothing yet, and were not hung up on.
  size_t mute() const { return mute_.size(); }

 private:
  struct Caller {
    std::string address;
    std::string place;    // what is counted together
    uint64_t cookie = 0;  // 0: not asked for yet
    Clock::time_point since;
    uint64_t number = 0;  // in order of arrival
    bool known = false;
    bool dropped = false;
  };
  void HangUp(int fd, Caller& caller);
  void Unmute(const Caller& caller);

  const StrangerLimits limits_;
  std::unordered_map<int, Caller> callers_;
  std::map<uint64_t, int> mute_;                                      // in order of arrival
  std::unordered_map<std::string, std::map<uint64_t, int>> mute_at_;  // the same, by place
  uint64_t next_ = 1;
  std::vector<int> fresh_;  // accepted since Enforce
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_CALLERS_H_
