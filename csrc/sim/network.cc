#include "csrc/sim/network.h"

#include <algorithm>
#include <cmath>

#include "csrc/wire/bodies.h"

namespace pathways::sim {

int64_t Network::Transfer(uint32_t from, uint32_t to, int64_t ready, int64_t bytes) {
  const double rate = from == to ? options_.local_bytes_per_ns : options_.bytes_per_ns;
  const auto duration = rate > 0 ? static_cast<int64_t>(std::llround(static_cast<double>(bytes) / rate)) : 0;
  if (from == to) return ready + duration;
  if (sending_until_.size() <= from) sending_until_.resize(from + 1, 0);
  const int64_t start = std::max(ready, sending_until_[from]);
  sending_until_[from] = start + duration;
  return start + duration + options_.latency_ns;
}

void Network::Send(uint32_t from, uint32_t to, uint64_t key, int64_t bytes, const std::shared_ptr<Value>& source) {
  source->When([this, from, to, key, bytes](const Value& value) {
    if (from < lost_.size() && lost_[from]) return;  // its receivers know
    const bool failed = !value.error().ok();
    const int64_t ready = std::max(value.at(), int64_t{0});
    Sent(from, to, key, failed ? ready + options_.latency_ns : Transfer(from, to, ready, bytes), value.error());
  });
}

void Network::Sent(uint32_t from, uint32_t to, uint64_t key, int64_t at, const Status& error) {
  if (to < lost_.size() && lost_[to]) return;
  auto [it, fresh] = mail_.try_emplace({to, key});
  if (!fresh && it->second.arrival) {
    Arrival arrival = std::move(it->second.arrival);
    mail_.erase(it);
    return Deliver(at, error, std::move(arrival));
  }
  it->second.from = from;
  it->second.sent = true;
  it->second.at = at;
  it->second.error = error;
}

void Network::Receive(uint32_t from, uint32_t to, uint64_t key, Arrival arrival) {
  auto [it, fresh] = mail_.try_emplace({to, key});
  if (!fresh && it->second.sent) {
    const Mail mail = std::move(it->second);
    mail_.erase(it);
    return Deliver(mail.at, mail.error, std::move(arrival));
  }
  it->second.from = from;
  it->second.arrival = std::move(arrival);
}

void Network::Upload(uint32_t, int64_t bytes, Arrival arrival) {
  const auto duration = options_.bytes_per_ns > 0
                            ? static_cast<int64_t>(std::llround(static_cast<double>(bytes) / options_.bytes_per_ns))
                            : 0;
  Deliver(timeline_->now() + options_.latency_ns + duration, OkStatus(), std::move(arrival));
}

void Network::Deliver(int64_t at, const Status& error, Arrival arrival) {
  timeline_->At(at, [error, arrival = std::move(arrival)](int64_t when) { arrival(when, error); });
}

template <typename Predicate>
void Network::Fail(Predicate predicate, const Status& error) {
  std::vector<Arrival> waiting;
  std::erase_if(mail_, [&](auto& entry) {
    if (!predicate(entry.first, entry.second)) return false;
    if (entry.second.arrival) waiting.push_back(std::move(entry.second.arrival));
    return true;
  });
  for (Arrival& arrival : waiting) arrival(timeline_->now(), error);
}

void Network::LoseHost(uint32_t host, const Status& error) {
  if (lost_.size() <= host) lost_.resize(host + 1, 0);
  lost_[host] = 1;
  Fail([host](const Key& key, const Mail& mail) { return key.to == host || (mail.from == host && !mail.sent); }, error);
}

void Network::DropClient(uint32_t client, const Status& error) {
  Fail([client](const Key& key, const Mail&) { return wire::ClientOf(key.key) == client; }, error);
}

}  // namespace pathways::sim
