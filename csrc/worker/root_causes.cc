#include "csrc/worker/root_causes.h"

#include <string_view>

namespace pathways::worker {
namespace {

constexpr size_t kRememberedCauses = 64;

// What XLA's CPU client puts before an argument's error, once for each execution that handed it on.
constexpr std::string_view kHandedOn = "Error dispatching computation: ";

std::string WithoutHandingOn(std::string_view message) {
  while (message.starts_with(kHandedOn)) message.remove_prefix(kHandedOn.size());
  return std::string(message);
}

}  // namespace

void RootCauses::Note(const store::Object& object, Inputs& inputs) {
  const std::shared_ptr<store::Origin>& origin = object.origin;
  if (origin == nullptr || (origin->ended && origin->cause.ok())) return;
  // A step's arguments are mostly the results of one run.
  if (inputs.empty() || inputs.back() != origin) inputs.push_back(origin);
}

void RootCauses::NoteAll(const store::Object& object, Inputs& inputs) {
  Note(object, inputs);
  for (const store::Object::Alias& alias : object.aliases) {
    if (alias.of != nullptr) NoteAll(*alias.of, inputs);
  }
}

Status RootCauses::FirstFailure(const Inputs& inputs) {
  for (const std::shared_ptr<store::Origin>& input : inputs) PW_RETURN_IF_ERROR(input->cause);
  return OkStatus();
}

bool RootCauses::MustWait(const Inputs& inputs, std::function<void()> again) {
  for (const std::shared_ptr<store::Origin>& input : inputs) {
    if (input->ended) continue;
    input->dependents.push_back(std::move(again));
    return true;
  }
  return false;
}

void RootCauses::End(store::Origin& origin, const Status& cause) {
  origin.ended = true;
  origin.cause = cause;
  for (const auto& again : std::exchange(origin.dependents, {})) again();
}

void RootCauses::Remember(std::string text, Status cause) {
  elsewhere_.emplace_back(std::move(text), std::move(cause));
  if (elsewhere_.size() > kRememberedCauses) elsewhere_.pop_front();
}

Status RootCauses::Find(const Status& reported, const Inputs& inputs, store::Origin* own,
                        const std::function<Status(const Status&)>& blame) const {
  const Status status(reported.code(), WithoutHandingOn(reported.message()));
  const auto hands_on = [&](const std::string& text) {
    if (text.empty() || status.message().find(text) == std::string_view::npos) return false;
    if (own != nullptr) own->reported = text;
    return true;
  };
  for (const std::shared_ptr<store::Origin>& input : inputs) {
    if (!input->cause.ok() && hands_on(input->reported)) return input->cause;
  }
  for (const auto& [text, cause] : elsewhere_) {
    if (hands_on(text)) return cause;
  }
  if (own != nullptr) own->reported = std::string(status.message());
  return blame(status);
}

}  // namespace pathways::worker
