// ArrivalOrder: gangs reach each host in an order of its own, as if every client spoke to every host directly. What a
// cluster does without one order per island; used only to show and test what the order is good for.
//
// Of two gangs of different clients that follow one another, every second host gets the later one first. A client's
// own messages keep their order everywhere.
//
// A pure state machine. Ownership: owned by ClusterState. Threads: none inside; the owner serialises calls.
#ifndef PTPATHWAYS_CONTROLLER_ARRIVAL_ORDER_H_
#define PTPATHWAYS_CONTROLLER_ARRIVAL_ORDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace pathways::controller {

template <typename Message>
class ArrivalOrder {
 public:
  // Takes a gang's message of `client` to `host`; calls emit(Message) for what goes out now.
  template <typename Emit>
  void Deliver(uint32_t client, uint32_t host, Message message, Emit emit) {
    auto late = late_.find(host);
    if (late == late_.end()) {
      if (host % 2 == 0) return emit(std::move(message));
      late_.emplace(host, std::pair(client, std::move(message)));
      return;
    }
    auto [earlier_client, earlier] = std::move(late->second);
    late_.erase(late);
    if (earlier_client == client) std::swap(earlier, message);
    emit(std::move(message));
    emit(std::move(earlier));
  }

  // Whatever else a client sends must not overtake its gangs: lets those of `client`, or of all, go now.
  template <typename Emit>
  void Release(std::optional<uint32_t> client, Emit emit) {
    for (auto it = late_.begin(); it != late_.end();) {
      if (client && it->second.first != *client) {
        ++it;
        continue;
      }
      emit(std::move(it->second.second));
      it = late_.erase(it);
    }
  }

  void DropHost(uint32_t host) { late_.erase(host); }

 private:
  std::map<uint32_t, std::pair<uint32_t, Message>> late_;  // by host: who, and what
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_ARRIVAL_ORDER_H_
