#include "csrc/plan/places.h"

#include <algorithm>
#include <string>

namespace pathways::plan {
namespace {

size_t CountPlaced(const std::vector<uint32_t>& places) {
  return static_cast<size_t>(
      std::count_if(places.begin(), places.end(), [](uint32_t place) { return place != wire::kNoPlace; }));
}

// Each named place is below `count`, and named once.
Status CheckDistinct(const std::vector<uint32_t>& places, size_t count, const char* what) {
  std::vector<char> seen(count, 0);
  for (const uint32_t place : places) {
    if (place == wire::kNoPlace) continue;
    if (place >= count) {
      return InvalidArgument("expected a place below " + std::to_string(count) + ", got " + std::to_string(place));
    }
    if (seen[place]++ != 0) return InvalidArgument(std::string("a place has two ") + what);
  }
  return OkStatus();
}

}  // namespace

std::vector<char> OverwrittenInputs(const wire::RegisterPlan& plan) {
  std::vector<char> slots(plan.slots.size(), 0);
  for (const wire::PlanStep& step : plan.steps) {
    for (const uint32_t position : step.donated) {
      if (position < step.arguments.size() && step.arguments[position] < slots.size()) {
        slots[step.arguments[position]] = 1;
      }
    }
  }
  std::vector<char> inputs;
  inputs.reserve(plan.inputs.size());
  for (const wire::PlanPort& port : plan.inputs) inputs.push_back(port.slot < slots.size() && slots[port.slot]);
  return inputs;
}

Status Places::Check(const wire::RunInPlace& message) const {
  if (message.places.size() != message.before.size() || message.places.size() != message.after.size()) {
    return InvalidArgument("a run in place must say of each place that differs what was and what will be there");
  }
  const bool first = message.previous == 0;
  const std::vector<uint32_t>& arguments = first ? message.argument_places : argument_places_;
  const std::vector<uint32_t>& results = first ? message.result_places : result_places_;
  size_t count = buffers_.size();
  if (first) {
    if (arguments.size() != overwritten_.size() || results.size() != results_) {
      return InvalidArgument("expected a place for each of the program's " + std::to_string(overwritten_.size()) +
                             " arguments and " + std::to_string(results_) + " results, got " +
                             std::to_string(arguments.size()) + " and " + std::to_string(results.size()));
    }
    // All are filled by the first message, so it names as many as there are.
    count = message.places.size();
    PW_RETURN_IF_ERROR(CheckDistinct(arguments, count, "arguments"));
    PW_RETURN_IF_ERROR(CheckDistinct(results, count, "results"));
  } else if (message.previous != last_) {
    return FailedPrecondition("it continues run " + std::to_string(message.previous) +
                              ", but the program's last run in place was " + std::to_string(last_));
  } else if (!message.argument_places.empty() || !message.result_places.empty()) {
    return InvalidArgument("only a program's first run in place says what lies where");
  }
  PW_RETURN_IF_ERROR(CheckDistinct(message.places, count, "values"));
  if (std::find(message.places.begin(), message.places.end(), wire::kNoPlace) != message.places.end()) {
    return InvalidArgument("a place that differs has no number");
  }
  if (message.arguments.size() != arguments.size() - CountPlaced(arguments) ||
      message.output_count != results.size() - CountPlaced(results)) {
    return InvalidArgument("expected " + std::to_string(arguments.size() - CountPlaced(arguments)) + " arguments and " +
                           std::to_string(results.size() - CountPlaced(results)) + " results without a place, got " +
                           std::to_string(message.arguments.size()) + " and " + std::to_string(message.output_count));
  }
  for (const uint32_t position : message.donated) {
    if (position >= arguments.size()) return InvalidArgument("there is no argument " + std::to_string(position));
  }
  return OkStatus();
}

void Places::Apply(const wire::RunInPlace& message) {
  if (message.previous == 0) {
    argument_places_ = message.argument_places;
    result_places_ = message.result_places;
    buffers_.assign(message.places.size(), 0);
    written_.assign(message.places.size(), 0);
    for (const uint32_t place : result_places_) {
      if (place != wire::kNoPlace) written_[place] = 1;
    }
    for (size_t position = 0; position < argument_places_.size(); ++position) {
      const uint32_t place = argument_places_[position];
      if (place != wire::kNoPlace && written_[place] && overwritten_[position]) written_[place] = 2;
    }
  }
  // Shards that were put together for this run have no id to be found under in the next, which has to name them again.
  for (size_t i = 0; i < message.places.size(); ++i) {
    buffers_[message.places[i]] = message.after[i] & wire::kAssembledBit ? 0 : message.after[i];
  }
  last_ = message.run;
}

void Places::Spell(const wire::RunInPlace& message, FullRun& full) const {
  wire::RunProgram& run = full.run;
  run.run = message.run;
  run.program = message.program;
  run.first_key = message.first_key;
  run.first_output = message.first_output;
  run.output_count = message.output_count;
  run.assembled = message.assembled;
  run.donated = message.donated;
  run.arguments.assign(argument_places_.size(), 0);
  std::vector<uint32_t> change_of(message.places.empty() ? 0 : buffers_.size(), 0);  // 1 + index in the message
  for (size_t i = 0; i < message.places.size(); ++i) change_of[message.places[i]] = static_cast<uint32_t>(i) + 1;
  size_t named = 0;
  for (size_t position = 0; position < argument_places_.size(); ++position) {
    const uint32_t place = argument_places_[position];
    if (place == wire::kNoPlace) {
      run.arguments[position] = message.arguments[named++];
    } else if (!change_of.empty() && change_of[place] != 0) {
      run.arguments[position] = message.before[change_of[place] - 1];
    } else {
      run.arguments[position] = buffers_[place];
      if (written_[place] == 2) run.donated.push_back(static_cast<uint32_t>(position));
    }
  }
  full.results.resize(result_places_.size());
  uint64_t next = message.first_output;
  for (size_t k = 0; k < result_places_.size(); ++k) {
    const uint32_t place = result_places_[k];
    full.results[k] = place == wire::kNoPlace ? next++ : buffers_[place];
  }
}

}  // namespace pathways::plan
