#include "csrc/values/sequencer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "csrc/values/callback_pool.h"

namespace pathways::values {
namespace {

std::string ListOf(const std::vector<uint32_t>& devices) {
  std::string text;
  for (uint32_t device : devices) text += (text.empty() ? "" : ", ") + std::to_string(device);
  return text;
}

}  // namespace

void Sequencer::Submit(std::span<const uint32_t> devices, std::function<void()> work) {
  if (held_.load(std::memory_order_acquire) == 0) return work();
  auto item = std::make_shared<Item>();
  item->devices.assign(devices.begin(), devices.end());
  std::sort(item->devices.begin(), item->devices.end());
  item->devices.erase(std::unique(item->devices.begin(), item->devices.end()), item->devices.end());
  item->work = std::move(work);
  Push(item);
}

void Sequencer::Join(std::shared_ptr<GangCall> call) {
  auto item = std::make_shared<Item>();
  item->devices = {call->devices[call->row]};
  item->call = std::move(call);
  item->deadline = Clock::now() + gang_timeout_;
  Push(item);
}

void Sequencer::Push(const std::shared_ptr<Item>& item) {
  UniqueLock lock(mutex_);
  held_.fetch_add(1, std::memory_order_acq_rel);
  if (item->call != nullptr) {
    ++calls_;
    if (!watching_) {
      watching_ = true;
      RunOnPool([self = shared_from_this()] { self->Watch(); });
    }
  }
  for (uint32_t device : item->devices) queues_[device].push_back(item);
  Release(lock);
}

void Sequencer::Release(UniqueLock& lock) {
  if (releasing_) return;  // whoever does looks at the queues once more before it stops
  releasing_ = true;
  while (std::function<void()> work = TakeReady()) {
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
  releasing_ = false;
  changed_.notify_all();  // other calls may be in front now
}

bool Sequencer::IsFront(const Item& item) const {
  return std::all_of(item.devices.begin(), item.devices.end(), [&](uint32_t device) PW_REQUIRES(mutex_) {
    auto it = queues_.find(device);
    return it != queues_.end() && !it->second.empty() && it->second.front().get() == &item;
  });
}

std::function<void()> Sequencer::TakeReady() {
  for (auto& [device, queue] : queues_) {
    if (queue.empty()) continue;
    const std::shared_ptr<Item> item = queue.front();
    if (item->call != nullptr) {
      if (auto work = TakeGang(*item)) return work;
      continue;
    }
    if (!IsFront(*item)) continue;
    for (uint32_t each : item->devices) queues_[each].pop_front();
    return [this, item] {
      item->work();
      item->work = nullptr;  // what it held goes before the item counts as finished
      held_.fetch_sub(1, std::memory_order_acq_rel);
    };
  }
  return nullptr;
}

std::function<void()> Sequencer::TakeGang(const Item& first) {
  const std::vector<uint32_t>& devices = first.call->devices;
  std::vector<std::shared_ptr<GangCall>> calls(devices.size());
  for (uint32_t device : devices) {
    auto it = queues_.find(device);
    if (it == queues_.end() || it->second.empty()) return nullptr;
    const std::shared_ptr<GangCall>& call = it->second.front()->call;
    if (call == nullptr || call->devices != devices) return nullptr;
    calls[call->row] = call;
  }
  for (uint32_t device : devices) queues_[device].pop_front();
  calls_ -= calls.size();
  return [this, calls = std::move(calls)]() mutable {
    std::optional<Status> mismatch;
    for (const auto& call : calls) {
      if (call->signature == calls[0]->signature) continue;
      mismatch = InvalidArgument("every device of a gang must execute the same computation, got " + calls[0]->what +
                                 " with " + calls[0]->signature + " on device " + std::to_string(call->devices[0]) +
                                 " and " + call->what + " with " + call->signature + " on device " +
                                 std::to_string(call->devices[call->row]) +
                                 "; replicas must run their collectives in one order");
      break;
    }
    if (mismatch) {
      for (const auto& call : calls) call->fail(*mismatch);
    } else {
      calls[0]->launch(calls);
    }
    const size_t count = calls.size();
    calls.clear();
    held_.fetch_sub(count, std::memory_order_acq_rel);
  };
}

void Sequencer::Watch() {
  UniqueLock lock(mutex_);
  while (calls_ > 0) {
    // Only calls in front can expire; what is behind one waits for that one.
    Clock::time_point next = Clock::now() + gang_timeout_;
    for (const auto& [device, queue] : queues_) {
      if (!queue.empty() && queue.front()->call != nullptr) next = std::min(next, queue.front()->deadline);
    }
    changed_.wait_until(lock, next);
    while (std::function<void()> work = TakeExpired(Clock::now())) {
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      Release(lock);
    }
  }
  watching_ = false;
}

std::function<void()> Sequencer::TakeExpired(Clock::time_point now) {
  for (auto& [device, queue] : queues_) {
    if (queue.empty() || queue.front()->call == nullptr || queue.front()->deadline > now) continue;
    // The gang that this call waits for: whoever is there fails, whoever is not gets named.
    const std::vector<uint32_t> devices = queue.front()->call->devices;
    std::vector<std::shared_ptr<GangCall>> present;
    std::vector<uint32_t> absent;
    for (uint32_t each : devices) {
      auto& other = queues_[each];
      if (!other.empty() && other.front()->call != nullptr && other.front()->call->devices == devices) {
        present.push_back(other.front()->call);
        other.pop_front();
      } else {
        absent.push_back(each);
      }
    }
    calls_ -= present.size();
    const Status status = DeadlineExceeded(
        "a gang over devices " + ListOf(devices) + " is incomplete: waited " +
        std::to_string(gang_timeout_.count() / 1000) + " s, but no call came for device " + ListOf(absent) +
        "; every replica must execute the computation (client option gang_timeout_seconds sets the time)");
    return [this, present = std::move(present), status]() mutable {
      for (const auto& call : present) call->fail(status.WithPrefix(call->what));
      const size_t count = present.size();
      present.clear();
      held_.fetch_sub(count, std::memory_order_acq_rel);
    };
  }
  return nullptr;
}

}  // namespace pathways::values
