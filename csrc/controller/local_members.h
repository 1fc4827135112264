// LocalMembers: the clients and simulated hosts of the controller's own process, and what is on its way to them.
//
// Ownership: owned by Controller; owns the clients' inboxes, which a delivery under way keeps. Threads: any. Locks: all
// but Deliver and Finish are called under the controller's lock. Each client has a lock of its own for its inbox, taken
// after that one and not held in its sink.
#ifndef PTPATHWAYS_CONTROLLER_LOCAL_MEMBERS_H_
#define PTPATHWAYS_CONTROLLER_LOCAL_MEMBERS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/controller/outbox.h"

namespace pathways::controller {

class LocalMembers {
 public:
  // Takes a message.
  using Sink = std::function<void(std::string head, std::vector<Payload> payloads)>;

  class Client {
   public:
    explicit Client(Sink sink) : sink_(std::move(sink)) {}
    // Calls the sink with what is in the inbox, in order. Within the sink itself: nothing, as the caller goes on after
    // it. One thread only calls this, the controller's own.
    void Deliver();
    // The sink is not called any more once this returns; unless it is called within the sink.
    void Finish();

   private:
    friend class LocalMembers;

    const Sink sink_;
    std::mutex mutex_;
    std::condition_variable idle_;
    std::deque<Outgoing> inbox_ PW_GUARDED_BY(mutex_);
    std::thread::id delivering_ PW_GUARDED_BY(mutex_){};  // the thread that calls the sink just now
    bool detached_ PW_GUARDED_BY(mutex_) = false;
  };
  using Clients = std::vector<std::shared_ptr<Client>>;

  Connection AttachClient(Sink sink);
  Connection AttachHost(Sink sink);
  // Null: it was none, or a host.
  std::shared_ptr<Client> Detach(const Connection& connection);
  // Calls the sink of a host; adds a client, in whose inbox the message is now, to `waiting`. Nobody's is dropped.
  void Put(Outgoing message, Clients& waiting);
  bool has_clients() const { return !clients_.empty(); }

 private:
  Connection NewName() { return "local/" + std::to_string(next_++); }

  std::unordered_map<Connection, std::shared_ptr<Client>> clients_;
  std::unordered_map<Connection, Sink> hosts_;
  uint32_t next_ = 1;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_LOCAL_MEMBERS_H_
