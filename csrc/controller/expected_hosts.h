// ExpectedHosts: the hosts that are on their way, which become hosts 0, 1, ... in the order in which they are named,
// whoever calls first.
//
// A pure state machine. Ownership: owned by ClusterState. Threads: none inside; the owner serialises calls. Locks:
// none.
#ifndef PTPATHWAYS_CONTROLLER_EXPECTED_HOSTS_H_
#define PTPATHWAYS_CONTROLLER_EXPECTED_HOSTS_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pathways::controller {

class ExpectedHosts {
 public:
  struct Call {
    std::string from;   // the connection
    std::string hello;  // the body
  };

  explicit ExpectedHosts(std::vector<std::string> names) : names_(std::move(names)) {}

  // Whether the host must wait for one that is expected before it.
  bool MustWait(const std::string& name) const {
    return joined_ < names_.size() &&
           std::find(names_.begin() + static_cast<ptrdiff_t>(joined_) + 1, names_.end(), name) != names_.end();
  }
  // It waits, until it is the next.
  void Wait(const std::string& name, Call call) { waiting_[name] = std::move(call); }
  void Joined(const std::string& name) {
    if (joined_ < names_.size() && names_[joined_] == name) ++joined_;
  }
  // The call of the host that is expected next, if it waits.
  std::optional<Call> TakeNext() {
    if (joined_ >= names_.size()) return std::nullopt;
    auto next = waiting_.extract(names_[joined_]);
    if (next.empty()) return std::nullopt;
    return std::move(next.mapped());
  }
  // The connection ended.
  void Forget(const std::string& from) {
    std::erase_if(waiting_, [&from](const auto& entry) { return entry.second.from == from; });
  }

  // Some have joined, and some have not.
  bool under_way() const { return joined_ > 0 && joined_ < names_.size(); }
  bool knows(const std::string& from) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& entry) { return entry.second.from == from; });
  }
  // Those that have never called.
  std::vector<std::string> Missing() const {
    std::vector<std::string> missing;
    for (size_t i = joined_; i < names_.size(); ++i) {
      if (!waiting_.contains(names_[i])) missing.push_back(names_[i]);
    }
    return missing;
  }

 private:
  const std::vector<std::string> names_;
  size_t joined_ = 0;                    // of them
  std::map<std::string, Call> waiting_;  // by name
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_EXPECTED_HOSTS_H_
