#include "csrc/compiled/families.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/compiled/hash.h"

namespace pathways::compiled {
namespace {

std::vector<size_t> Differing(const std::vector<hlo::ModuleNumber>& a, const std::vector<hlo::ModuleNumber>& b) {
  std::vector<size_t> out;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) out.push_back(i);
  }
  return out;
}

Chosen Special(std::string_view module, const std::string& family, bool is_new) {
  Chosen chosen;
  chosen.module = std::string(module);
  chosen.family = family;
  chosen.is_new = is_new;
  return chosen;
}

}  // namespace

ModuleFamilies::Family* ModuleFamilies::Find(const std::string& name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*found->second;
}

ModuleFamilies::Computation* ModuleFamilies::Find(Family& family, const std::string& module) {
  for (Computation& each : family.computations) {
    if (each.module == module) return &each;
  }
  return nullptr;
}

Result<Chosen> ModuleFamilies::Choose(std::string_view module) {
  PW_ASSIGN_OR_RETURN(hlo::ModuleNumbers read, hlo::ReadNumbers(module));
  const std::vector<hlo::ModuleNumber>& numbers = read.numbers;
  const std::string name = ContentHash(read.skeleton);
  std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    families_.emplace_front();
    families_.front().name = name;
    families_.front().first_module = ContentHash(module);
    families_.front().first = numbers;
    by_name_[name] = families_.begin();
    if (families_.size() > kFamilies) {
      by_name_.erase(families_.back().name);
      families_.pop_back();
    }
    return Special(module, name, true);
  }
  families_.splice(families_.begin(), families_, found->second);
  Family& family = families_.front();
  const std::vector<size_t> differing = Differing(family.first, numbers);
  if (differing.empty()) return Special(module, name, ContentHash(module) != family.first_module);
  if (family.given_up) return Special(module, name, true);
  const auto at = [&](Computation& computation, bool is_new) {
    Chosen chosen = Special(computation.module, name, is_new);
    for (const size_t position : computation.open) chosen.numbers.push_back(numbers[position]);
    if (!is_new && !computation.compared) {
      chosen.common = computation.program.lock();
      chosen.special = family.first_program.lock();
    }
    return chosen;
  };
  for (Computation& each : family.computations) {
    if (std::includes(each.open.begin(), each.open.end(), differing.begin(), differing.end())) return at(each, false);
  }
  Computation fresh;
  const std::vector<size_t> before =
      family.computations.empty() ? std::vector<size_t>() : family.computations.back().open;
  std::set_union(before.begin(), before.end(), differing.begin(), differing.end(), std::back_inserter(fresh.open));
  if (family.computations.size() == kComputations || fresh.open.size() > kNumbers) {
    return Special(module, name, true);
  }
  PW_ASSIGN_OR_RETURN(fresh.module, hlo::WithNumbersAsParameters(module, fresh.open));
  family.computations.push_back(std::move(fresh));
  return at(family.computations.back(), true);
}

void ModuleFamilies::Made(const Chosen& chosen, const std::shared_ptr<const Program>& program) {
  std::lock_guard lock(mutex_);
  Family* const family = Find(chosen.family);
  if (family == nullptr) return;
  if (!chosen.numbers.empty()) {
    if (Computation* const computation = Find(*family, chosen.module)) computation->program = program;
  } else if (ContentHash(chosen.module) == family->first_module) {
    family->first_program = program;
  }
}

void ModuleFamilies::Compared(const Chosen& chosen, bool worse) {
  std::lock_guard lock(mutex_);
  Family* const family = Find(chosen.family);
  if (family == nullptr) return;
  if (Computation* const computation = Find(*family, chosen.module)) computation->compared = true;
  family->given_up = family->given_up || worse;
}

}  // namespace pathways::compiled
