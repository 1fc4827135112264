// Value: one shard that exists, will exist, or never will. There are no bytes: simulated devices do no arithmetic.
//
// Ownership: shared by buffers and by what waits for it. Threads: none inside; the cluster's one thread.
#ifndef PTPATHWAYS_SIM_VALUE_H_
#define PTPATHWAYS_SIM_VALUE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::sim {

class Value {
 public:
  using Waiter = std::function<void(const Value&)>;
  virtual ~Value() = default;

  bool settled() const { return settled_; }
  int64_t at() const { return at_; }  // when it came to exist, or was found never to
  const Status& error() const { return error_; }
  // Whether a device makes it; otherwise it is moved here.
  virtual bool computed() const { return false; }

  // Once; later calls change nothing.
  void Settle(int64_t at, Status error = OkStatus()) {
    if (settled_) return;
    settled_ = true;
    at_ = at;
    error_ = std::move(error);
    for (Waiter& waiter : std::exchange(waiters_, {})) waiter(*this);
  }
  // Calls when settled, which may be now.
  void When(Waiter waiter) {
    if (settled_) return waiter(*this);
    waiters_.push_back(std::move(waiter));
  }

  static std::shared_ptr<Value> Settled(int64_t at, Status error = OkStatus()) {
    auto value = std::make_shared<Value>();
    value->Settle(at, std::move(error));
    return value;
  }

 private:
  bool settled_ = false;
  int64_t at_ = 0;
  Status error_;
  std::vector<Waiter> waiters_;
};

// Settles its target when `parts` parts have come: with the latest time, and the first error if there was one.
class Assembly {
 public:
  Assembly(std::shared_ptr<Value> target, size_t parts) : target_(std::move(target)), left_(parts) {}
  void PartCame(int64_t at, const Status& error) {
    latest_ = std::max(latest_, at);
    if (error_.ok()) error_ = error;
    if (left_ > 0 && --left_ == 0) target_->Settle(latest_, error_);
  }

 private:
  const std::shared_ptr<Value> target_;
  size_t left_;
  int64_t latest_ = 0;
  Status error_;
};

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_VALUE_H_
