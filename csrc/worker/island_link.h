// IslandLink: this host's connection to the others of its island, through the controller, for the plugin's sake. By it
// a host takes its number among them, and its plugin finds the plugins of the others (pjrt::KeyValueStore).
//
// A connection and a thread of its own: the plugin may block in Get on any thread, the engine's too, while it enqueues
// a computation whose communicators are not set up yet.
//
// Ownership: owns its socket and its reactor. The engine and the plugin's client share it.
// Threads:   "pw-island" receives. Join, Get, TryGet and Put block, on any threads; Cancel from any thread.
// Locks:     mutex_ guards what is under way; never held while sending or in a callback.
#ifndef PTPATHWAYS_WORKER_ISLAND_LINK_H_
#define PTPATHWAYS_WORKER_ISLAND_LINK_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/pjrt/key_value.h"
#include "csrc/transport/reactor.h"
#include "csrc/transport/socket.h"
#include "csrc/wire/island_bodies.h"

namespace pathways::worker {

class IslandLink : public pjrt::KeyValueStore, private transport::SocketHandler {
 public:
  // Connects to the controller; returns before that has answered.
  static Result<std::shared_ptr<IslandLink>> Start(transport::SocketOptions socket, const std::string& controller);
  ~IslandLink() override;

  // This host's number, once all hosts of the island are there. `request.timeout_ms` is how long the first of them
  // waits; the controller says who did not come. `on_lost` is called once, on the link's thread, when the island has
  // lost a host, or the controller, after that.
  Result<uint32_t> Join(const wire::IslandJoin& request, std::function<void(const Status&)> on_lost);

  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override;
  Result<std::string> TryGet(const std::string& key) override;
  Status Put(const std::string& key, std::string value) override;

  // Whoever waits gets `status`, and so does every later call.
  void Cancel(const Status& status);

 private:
  IslandLink() = default;
  void OnMessage(transport::Socket& socket, std::string_view peer, transport::Frames& frames) override;
  void OnPeerEvent(transport::Socket& socket, const transport::PeerEvent& event) override;
  Result<wire::IslandAnswer> Ask(uint64_t request, std::string frame, std::chrono::milliseconds timeout);
  Result<std::string> AskForKey(wire::KeyValue request);
  Status Take(std::string_view frame);
  void Lose(const Status& status);

  std::shared_ptr<transport::Socket> socket_;
  std::unique_ptr<transport::Reactor> reactor_;
  std::string controller_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_request_ PW_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::optional<wire::IslandAnswer>> asked_ PW_GUARDED_BY(mutex_);  // by request
  Status failure_ PW_GUARDED_BY(mutex_);
  std::function<void(const Status&)> on_lost_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ISLAND_LINK_H_
