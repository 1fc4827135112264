#include "csrc/sim/fleet.h"

#include <algorithm>
#include <map>
#include <set>

namespace pathways::sim {
namespace {

std::string ListDevices(const std::vector<uint32_t>& devices) {
  constexpr size_t kShown = 8;
  std::string text = devices.size() == 1 ? "device " : "devices ";
  for (size_t i = 0; i < std::min(devices.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(devices[i]);
  }
  if (devices.size() > kShown) text += " and " + std::to_string(devices.size() - kShown) + " more";
  return text;
}

}  // namespace

// What has not ended refers to its gang, and the gang to it.
Fleet::~Fleet() {
  for (const Device& device : devices_) {
    for (const std::shared_ptr<Item>& item : device.queue) item->gang->items.clear();
  }
}

std::shared_ptr<Fleet::Gang> Fleet::FindOrMake(const Launch& launch) {
  const bool meets = launch.devices != nullptr && launch.devices->size() > 1;
  std::shared_ptr<Gang> gang;
  if (meets) {
    std::shared_ptr<Gang>& slot = gangs_[launch.id];
    if (slot != nullptr) return slot;
    gang = slot = std::make_shared<Gang>();
    gang->registered = true;
  } else {
    gang = std::make_shared<Gang>();
  }
  gang->id = launch.id;
  gang->what = launch.what;
  gang->client = launch.client;
  gang->program = launch.program;
  gang->node = launch.node;
  gang->cost_ns = launch.cost_ns;
  gang->members = meets ? static_cast<uint32_t>(launch.devices->size()) : 1;
  gang->devices = meets ? launch.devices : nullptr;
  if (meets && any_lost_) {
    for (const uint32_t device : *launch.devices) {
      if (devices_[device].lost.ok()) continue;
      gang->failed_early = true;
      gang->error = devices_[device].lost;
      ++gang->ended;  // this member will never come
    }
  }
  return gang;
}

void Fleet::Enqueue(const Launch& launch, const std::vector<uint32_t>& local, std::vector<Inputs> inputs,
                    const std::shared_ptr<RunPart>& part, std::vector<std::shared_ptr<Value>>* outputs) {
  const int64_t now = timeline_->now();
  const bool meets = launch.devices != nullptr && launch.devices->size() > 1;
  std::shared_ptr<Gang> gang = meets ? FindOrMake(launch) : nullptr;
  outputs->clear();
  for (size_t i = 0; i < local.size(); ++i) {
    auto item = std::make_shared<Item>();
    item->gang = meets ? gang : FindOrMake(launch);
    item->inputs = std::move(inputs[i]);
    item->part = part;
    item->device = local[i];
    item->queued_at = now;
    Device& device = devices_[local[i]];
    device.queue.push_back(item);
    if (device.queue.size() == 1) Touch(local[i]);
    outputs->push_back(std::move(item));
  }
  enqueued_ += local.size();
  last_enqueue_ = now;
  Drain();
}

void Fleet::Touch(uint32_t device) {
  if (devices_[device].touched) return;
  devices_[device].touched = true;
  touched_.push_back(device);
}

void Fleet::Drain() {
  if (draining_) return;
  draining_ = true;
  while (!touched_.empty()) {
    const uint32_t device = touched_.back();
    touched_.pop_back();
    devices_[device].touched = false;
    Advance(device);
  }
  draining_ = false;
}

void Fleet::Advance(uint32_t index) {
  Device& device = devices_[index];
  if (device.queue.empty()) return;
  std::shared_ptr<Item> item = device.queue.front();
  if (item->state != Item::State::kQueued) return;
  item->state = Item::State::kWaitsForInputs;
  item->arrived_at = std::max(item->queued_at, device.free_at);
  for (const std::shared_ptr<Value>& input : item->inputs) {
    if (!input->settled()) ++item->missing;
  }
  if (item->missing == 0) return InputsCame(item);
  // The list may not change under the loop, and it does when a value settles at once.
  const Inputs inputs = item->inputs;
  for (const std::shared_ptr<Value>& input : inputs) {
    if (input->settled()) continue;
    input->When([this, item](const Value&) {
      if (--item->missing > 0) return;
      InputsCame(item);
      Drain();
    });
  }
}

void Fleet::InputsCame(const std::shared_ptr<Item>& item) {
  if (item->state != Item::State::kWaitsForInputs) return;  // its host was lost meanwhile
  for (const std::shared_ptr<Value>& input : item->inputs) {
    item->arrived_at = std::max(item->arrived_at, input->at());
    if (!input->error().ok() && item->gang->error.ok()) item->gang->error = input->error();
  }
  item->inputs.clear();
  Arrive(item);
}

void Fleet::Arrive(const std::shared_ptr<Item>& item) {
  item->state = Item::State::kWaitsForGang;
  const std::shared_ptr<Gang> gang = item->gang;
  if (gang->failed_early) {
    End(item, item->arrived_at, item->arrived_at, gang->error);
    if (++gang->ended >= gang->members) Forget(*gang);
    return;
  }
  gang->latest = std::max(gang->latest, item->arrived_at);
  gang->items.push_back(item);
  if (gang->members == 1) return Start(gang);
  if (++gang->arrived == 1) ++waiting_;
  if (gang->arrived < gang->members) return;
  --waiting_;
  Start(gang);
}

void Fleet::Start(const std::shared_ptr<Gang>& gang) {
  const int64_t start = gang->latest;
  const int64_t end = gang->error.ok() ? start + gang->cost_ns : start;
  for (const std::shared_ptr<Item>& item : gang->items) item->state = Item::State::kRuns;
  // By the timeline even when it is past, so that a long chain of consequences is a loop and not a recursion.
  timeline_->At(end, [this, gang, start](int64_t at) {
    EndAll(gang, start, at);
    Drain();
  });
}

void Fleet::EndAll(const std::shared_ptr<Gang>& gang, int64_t start, int64_t end) {
  Forget(*gang);
  for (const std::shared_ptr<Item>& item : std::exchange(gang->items, {})) {
    if (item->state == Item::State::kRuns) End(item, start, end, gang->error);
  }
}

void Fleet::End(const std::shared_ptr<Item>& item, int64_t start, int64_t end, const Status& error) {
  item->state = Item::State::kEnded;
  ++ended_;
  Device& device = devices_[item->device];
  device.free_at = std::max(device.free_at, end);
  if (!device.queue.empty() && device.queue.front() == item) device.queue.pop_front();
  if (!device.queue.empty()) Touch(item->device);
  const Gang& gang = *item->gang;
  if (end > start) {
    trace_->Add({item->device, gang.client, gang.program, gang.node, gang.id.run, item->arrived_at, start, end});
  }
  const std::shared_ptr<RunPart> part = std::move(item->part);
  item->Settle(end, error);
  if (part) part->DeviceDone(item->device, end, end - start, error);
}

void Fleet::Forget(Gang& gang) {
  if (gang.registered) gangs_.erase(gang.id);
  gang.registered = false;
}

void Fleet::FailEarly(const std::shared_ptr<Gang>& gang, const Status& error) {
  if (gang->failed_early) return;
  if (StandsStill(*gang)) --waiting_;
  gang->failed_early = true;
  if (gang->error.ok()) gang->error = error;
  const int64_t now = timeline_->now();
  for (const std::shared_ptr<Item>& item : std::exchange(gang->items, {})) {
    if (item->state == Item::State::kEnded) continue;
    End(item, now, now, gang->error);
    ++gang->ended;
  }
  if (gang->ended >= gang->members) Forget(*gang);
}

void Fleet::FailGang(const Launch& launch, uint32_t member_count, const Status& error) {
  if (launch.devices == nullptr || launch.devices->size() < 2) return;
  const std::shared_ptr<Gang> gang = FindOrMake(launch);
  FailEarly(gang, error);
  gang->ended += member_count;  // these will never come
  if (gang->ended >= gang->members) Forget(*gang);
  Drain();
}

void Fleet::LoseDevices(uint32_t first, uint32_t count, const Status& error) {
  any_lost_ = true;
  for (uint32_t d = first; d < first + count && d < devices_.size(); ++d) devices_[d].lost = error;
  const auto is_lost = [&](uint32_t device) { return device >= first && device - first < count; };
  std::vector<std::shared_ptr<Gang>> needing;
  for (const auto& [id, gang] : gangs_) {
    if (gang->devices == nullptr || std::none_of(gang->devices->begin(), gang->devices->end(), is_lost)) continue;
    needing.push_back(gang);
  }
  for (uint32_t d = first; d < first + count && d < devices_.size(); ++d) {
    // Emptied without running: nobody hears of what a host that is gone computed.
    for (const std::shared_ptr<Item>& item : std::exchange(devices_[d].queue, {})) {
      item->state = Item::State::kEnded;
      item->part.reset();
      item->Settle(timeline_->now(), error);
    }
  }
  for (const std::shared_ptr<Gang>& gang : needing) {
    FailEarly(gang, error);
    gang->ended += static_cast<uint32_t>(std::count_if(gang->devices->begin(), gang->devices->end(), is_lost));
    if (gang->ended >= gang->members) Forget(*gang);
  }
  Drain();
}

std::vector<const Fleet::Gang*> Fleet::Circle() const {
  // An edge from a gang to every gang that stands at the head of a device which the first one misses. Walked depth
  // first; a gang met again on the path closes a circle.
  enum class Mark : uint8_t { kOnPath, kDone };
  std::map<const Gang*, Mark> marks;
  std::vector<const Gang*> path;
  const auto blockers = [this](const Gang& gang) {
    std::set<const Gang*> found;
    for (const uint32_t d : *gang.devices) {
      if (d >= devices_.size() || devices_[d].queue.empty()) continue;
      const Item& head = *devices_[d].queue.front();
      if (head.gang.get() != &gang && head.state == Item::State::kWaitsForGang) found.insert(head.gang.get());
    }
    return found;
  };
  struct Frame {
    const Gang* gang;
    std::set<const Gang*> next;
  };
  for (const auto& [id, root] : gangs_) {
    if (!StandsStill(*root) || marks.contains(root.get())) continue;
    std::vector<Frame> stack{{root.get(), blockers(*root)}};
    marks[root.get()] = Mark::kOnPath;
    path = {root.get()};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next.empty()) {
        marks[frame.gang] = Mark::kDone;
        path.pop_back();
        stack.pop_back();
        continue;
      }
      const Gang* next = *frame.next.begin();
      frame.next.erase(frame.next.begin());
      auto mark = marks.find(next);
      if (mark == marks.end()) {
        marks[next] = Mark::kOnPath;
        path.push_back(next);
        stack.push_back({next, blockers(*next)});
      } else if (mark->second == Mark::kOnPath) {
        return {std::find(path.begin(), path.end(), next), path.end()};
      }
    }
  }
  return {};
}

Status Fleet::FindDeadlock() const {
  const std::vector<const Gang*> circle = Circle();
  if (circle.empty()) return OkStatus();
  std::string text = "deadlock: devices got gangs in different orders, and a device is never interrupted;";
  for (size_t i = 0; i < circle.size(); ++i) {
    const Gang& gang = *circle[i];
    std::vector<uint32_t> here, missing;
    for (const std::shared_ptr<Item>& item : gang.items) here.push_back(item->device);
    std::sort(here.begin(), here.end());
    for (const uint32_t device : *gang.devices) {
      if (!std::binary_search(here.begin(), here.end(), device)) missing.push_back(device);
    }
    text += std::string(i == 0 ? " " : "; ") + "client " + std::to_string(gang.client) + "'s " + *gang.what + " (run " +
            std::to_string(gang.id.run & 0xffffffffffff) + ") holds " + ListDevices(here) + " and waits for " +
            ListDevices(missing);
  }
  return Status(Code::kAborted, text + ". Dispatch gangs in one order per island");
}

Status Fleet::BreakDeadlock() {
  Status found = FindDeadlock();
  if (found.ok()) return found;
  std::vector<std::shared_ptr<Gang>> gangs;
  for (const Gang* gang : Circle()) gangs.push_back(gangs_.at(gang->id));
  for (const std::shared_ptr<Gang>& gang : gangs) FailEarly(gang, found);
  Drain();
  return found;
}

}  // namespace pathways::sim
