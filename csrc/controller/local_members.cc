#include "csrc/controller/local_members.h"

#include <utility>

namespace pathways::controller {

void LocalMembers::Client::Deliver() {
  UniqueLock lock(mutex_);
  if (delivering_ == std::this_thread::get_id()) return;
  delivering_ = std::this_thread::get_id();
  while (!inbox_.empty() && !detached_) {
    Outgoing message = std::move(inbox_.front());
    inbox_.pop_front();
    lock.unlock();
    sink_(std::move(message.head), std::move(message.payloads));
    lock.lock();
  }
  delivering_ = {};
  idle_.notify_all();
}

void LocalMembers::Client::Finish() {
  UniqueLock lock(mutex_);
  detached_ = true;
  while (delivering_ != std::thread::id() && delivering_ != std::this_thread::get_id()) idle_.wait(lock);
}

Connection LocalMembers::AttachClient(Sink sink) {
  Connection connection = NewName();
  clients_[connection] = std::make_shared<Client>(std::move(sink));
  return connection;
}

Connection LocalMembers::AttachHost(Sink sink) {
  Connection connection = NewName();
  hosts_[connection] = std::move(sink);
  return connection;
}

std::shared_ptr<LocalMembers::Client> LocalMembers::Detach(const Connection& connection) {
  hosts_.erase(connection);
  auto node = clients_.extract(connection);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void LocalMembers::Put(Outgoing message, Clients& waiting) {
  if (const auto host = hosts_.find(message.to); host != hosts_.end()) {
    host->second(std::move(message.head), std::move(message.payloads));
  } else if (const auto client = clients_.find(message.to); client != clients_.end()) {
    if (waiting.empty() || waiting.back() != client->second) waiting.push_back(client->second);
    std::lock_guard inbox(client->second->mutex_);
    client->second->inbox_.push_back(std::move(message));
  }
}

}  // namespace pathways::controller
