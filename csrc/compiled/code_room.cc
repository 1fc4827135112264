#include "csrc/compiled/code_room.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pathways::compiled {
namespace {

// Half of what is compiled is let go of when so little is left: then hardly anything is compiled twice, and there is
// room for what others compile meanwhile.
constexpr uint32_t kLittleRoomPercent = 40;

}  // namespace

void CodeRoom::Add(std::weak_ptr<const CodeHolder> holder) {
  std::lock_guard lock(mutex_);
  std::erase_if(holders_, [](const auto& each) { return each.expired(); });
  holders_.push_back(std::move(holder));
}

void CodeRoom::MakeRoom(const CodeHolder* asking) {
  struct Use {
    uint64_t number;
    std::shared_ptr<const CodeHolder> holder;
  };
  std::vector<Use> uses;
  {
    std::lock_guard lock(mutex_);
    for (const auto& each : std::exchange(holders_, {})) {
      if (auto holder = each.lock()) uses.push_back({holder->used_.load(std::memory_order_relaxed), std::move(holder)});
    }
  }
  std::ranges::sort(uses, {}, &Use::number);  // numbers that were read once: uses go on meanwhile
  std::vector<std::weak_ptr<const CodeHolder>> kept;
  for (size_t i = 0; i < uses.size(); ++i) {
    const bool old = i < uses.size() / 2 && uses[i].holder.get() != asking;
    if (!old || !uses[i].holder->GiveUpCode()) kept.push_back(uses[i].holder);
  }
  std::lock_guard lock(mutex_);
  holders_.insert(holders_.end(), kept.begin(), kept.end());
}

Result<std::shared_ptr<client::Function>> CodeRoom::RegisterOnce(const std::shared_ptr<client::Session>& session,
                                                                 const std::string& key, client::FunctionSpec spec,
                                                                 const CodeHolder* asking) {
  {
    std::lock_guard lock(mutex_);
    auto it = functions_.find(key);
    if (it != functions_.end()) {
      if (std::shared_ptr<client::Function> known = it->second.lock(); known && known->session() == session) {
        // One that failed to compile is tried again: the cause may have gone.
        std::optional<Status> outcome = known->compiled()->TryGet();
        if (!outcome || outcome->ok()) return known;
      }
    }
  }
  if (session->functions().TakeCodeRoom() < kLittleRoomPercent) MakeRoom(asking);
  PW_ASSIGN_OR_RETURN(std::shared_ptr<client::Function> function, session->functions().Register(std::move(spec)));
  std::lock_guard lock(mutex_);
  std::erase_if(functions_, [](const auto& entry) { return entry.second.expired(); });
  functions_[key] = function;
  return function;
}

}  // namespace pathways::compiled
