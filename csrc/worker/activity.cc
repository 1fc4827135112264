#include "csrc/worker/activity.h"

#include <algorithm>
#include <chrono>

namespace pathways::worker {
namespace {

// Of each sort; how many more there are is said.
constexpr size_t kListedActivities = 3;

wire::Property Doing(std::string sort, std::string what, int64_t age_ms) {
  wire::Property property;
  property.name = std::move(sort);
  property.kind = 1;
  property.text = std::move(what);
  property.integer = age_ms;
  return property;
}

std::string Times(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

void Activity::Answer(uint64_t request) const {
  wire::Reply reply;
  reply.request = request;
  ListComputations(&reply.properties);
  ListWhatWaits(&reply.properties);
  data_.Post([this, reply = std::move(reply), hosts = cluster_.Names()]() mutable {  // whose transfers these are
    ListTransfers(hosts, &reply.properties);
    context_.Report(context_.SendReply(reply, {}));
  });
}

void Activity::ListComputations(Properties* out) const {
  const int64_t now_ms = NowMs();
  const auto now = std::chrono::steady_clock::now();
  size_t compiles = 0, runs = 0;
  for (const auto& [id, function] : functions_.all()) {
    if (function->compiled || ++compiles > kListedActivities) continue;
    out->push_back(Doing("compiles", function->Describe(), now_ms - function->since_ms));
  }
  for (const std::shared_ptr<PendingRun>& pending : completions_.Running()) {
    if (pending->left == 0 || ++runs > kListedActivities) continue;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - pending->enqueued).count();
    out->push_back(Doing("runs", pending->AtWhat(), age));
  }
  for (const collective::Stall& stall : gangs_.Stalls(std::chrono::milliseconds(0))) {
    const wire::HostDescription* const host = cluster_.Find(stall.waits_for_host);
    const std::string name = host != nullptr ? Quoted(host->name) : "another host";
    out->push_back(Doing("waits for " + name + " in a collective of", stall.what, stall.age.count()));
  }
  if (compiles > kListedActivities) {
    out->push_back(Doing("has", std::to_string(compiles - kListedActivities) + " more functions to compile", 0));
  }
  if (runs > kListedActivities) {
    out->push_back(Doing("has", std::to_string(runs - kListedActivities) + " more computations under way", 0));
  }
}

void Activity::ListWhatWaits(Properties* out) const {
  if (const int unready = buffers_.unready_sends(); unready > 0) {
    out->push_back(
        Doing("is to send", Times(static_cast<size_t>(unready), "value") + " when the devices have computed them", 0));
  }
  if (parking_.waiting() > 0) {
    out->push_back(Doing("keeps", std::to_string(parking_.waiting()) + " messages until a device has room", 0));
  }
}

void Activity::ListTransfers(const std::vector<std::string>& hosts, Properties* out) const {
  size_t transfers = 0;
  incoming_.ForEach([&](uint32_t from, uint64_t received, uint64_t expected, int64_t since_ms) {
    if (++transfers > kListedActivities) return;
    const std::string sender = from < hosts.size() ? "host " + Quoted(hosts[from]) : "the client";
    out->push_back(Doing("receives from " + sender,
                         std::to_string(received) + " of " + std::to_string(expected) + " bytes", NowMs() - since_ms));
  });
  if (transfers > kListedActivities) {
    out->push_back(Doing("has", std::to_string(transfers - kListedActivities) + " more transfers", 0));
  }
  auto sends = data_.open_transfers();
  std::sort(sends.begin(), sends.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (size_t i = 0; i < std::min(sends.size(), kListedActivities); ++i) {
    const auto& [peer, count] = sends[i];
    const std::string whom = peer.starts_with("c/") ? "client " + peer.substr(2) : "host '" + peer.substr(3) + "'";
    out->push_back(Doing("sends", Times(count, "value") + " to " + whom, 0));
  }
}

}  // namespace pathways::worker
