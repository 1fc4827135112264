#include "csrc/compiled/length_families.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "csrc/compiled/hash.h"
#include "csrc/compiled/program.h"
#include "csrc/hlo/lay_out.h"

namespace pathways::compiled {
namespace {

constexpr uint64_t kBeyond = 8;  // growing dimensions may be a little longer than the first one

std::vector<size_t> DifferingNumbers(const hlo::ModuleSizes& a, const hlo::ModuleSizes& b) {
  std::vector<size_t> out;
  for (size_t i = 0; i < a.numbers.size() && i < b.numbers.size(); ++i) {
    if (a.numbers[i] != b.numbers[i]) out.push_back(i);
  }
  return out;
}

// Sizes that are larger by one where they differ.
bool IsOneLonger(const hlo::ModuleSizes& shorter, const hlo::ModuleSizes& longer) {
  if (shorter.sizes.size() != longer.sizes.size() || shorter.sizes == longer.sizes) return false;
  for (size_t i = 0; i < shorter.sizes.size(); ++i) {
    const int64_t more = longer.sizes[i] - shorter.sizes[i];
    if (more != 0 && more != 1) return false;
  }
  return true;
}

// Of all arrays that grow, where each growing dimension has that size.
int64_t GrowingBytes(const hlo::LengthModule& module, int64_t size) {
  int64_t bytes = 0;
  const auto add = [&](const std::vector<TensorType>& types,
                       const std::vector<std::vector<hlo::GrowingDimension>>& growing) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (growing[i].empty()) continue;
      TensorType type = types[i];
      for (const hlo::GrowingDimension& each : growing[i]) type.dims[each.dimension] = size;
      bytes += type.ByteSize();
    }
  };
  add(module.parameters, module.growing_parameters);
  add(module.results, module.growing_results);
  return bytes;
}

hlo::ModuleNumber LengthNumber(int64_t length) { return {DType::kS32, static_cast<uint64_t>(length)}; }

}  // namespace

int64_t LengthFamilies::RoomFor(int64_t length) {
  return std::max(kLeastRoom, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length) + kBeyond)));
}

LengthFamilies::Choice LengthFamilies::Choose(std::string_view module) {
  if (module.size() > kModuleBytes) return {};
  const Result<std::string> plain = hlo::WithoutLayouts(module);
  if (!plain.ok()) return {};
  Result<hlo::ModuleSizes> read = hlo::ReadSizes(*plain);
  if (!read.ok() || read->sizes.empty()) return {};
  const std::string name = ContentHash(read->skeleton);
  read->skeleton.clear();
  read->skeleton.shrink_to_fit();
  std::lock_guard lock(mutex_);
  std::list<Family>::iterator candidate = families_.end();
  for (auto family = families_.begin(); family != families_.end(); ++family) {
    if (family->name != name) continue;
    std::optional<int64_t> length;
    if (family->longer) {
      length = hlo::LengthOf(family->first, *family->longer, *read);
      if (!length) continue;
    } else if (read->sizes == family->first.sizes) {
      families_.splice(families_.begin(), families_, family);
      return {};  // the same, or with other numbers (families.h)
    } else if (!IsOneLonger(family->first, *read) || family->first_program.expired()) {
      candidate = family;
      continue;
    } else {
      family->longer = *read;
      family->longer_module = *plain;
      length = hlo::LengthOf(family->first, *family->longer, *read);
    }
    families_.splice(families_.begin(), families_, family);
    if (!length || family->given_up) return {};
    std::optional<Choice> choice = At(*family, *read, *length);
    if (choice) return *std::move(choice);
    family->given_up = true;
    return {};
  }
  // Nothing that it grows from, perhaps what something grows from; one such is remembered of a kind.
  if (candidate == families_.end()) {
    families_.emplace_front();
  } else {
    families_.splice(families_.begin(), families_, candidate);
    families_.front() = Family();
  }
  Family& family = families_.front();
  family.id = next_id_++;
  family.name = name;
  family.first = *std::move(read);
  if (families_.size() > kFamilies) families_.pop_back();
  Choice choice;
  choice.begins = family.id;
  return choice;
}

std::optional<LengthFamilies::Choice> LengthFamilies::At(Family& family, const hlo::ModuleSizes& sizes,
                                                         int64_t length) {
  if (sizes.sizes == family.first.sizes && sizes.numbers == family.first.numbers) return Choice();
  std::vector<size_t> open = DifferingNumbers(family.first, sizes);
  Choice choice;
  std::shared_ptr<LengthProgram> found;
  for (const std::shared_ptr<LengthProgram>& each : family.computations) {
    const std::vector<size_t>& has = each->module().open;
    if (length <= each->module().longest && std::includes(has.begin(), has.end(), open.begin(), open.end()))
      found = each;
  }
  if (found == nullptr) {
    if (!family.computations.empty()) {
      const std::vector<size_t> before = family.computations.back()->module().open, differing = std::move(open);
      open.clear();
      std::set_union(before.begin(), before.end(), differing.begin(), differing.end(), std::back_inserter(open));
    }
    found = Make(family, length, std::move(open));
    if (found == nullptr) return std::nullopt;
    family.computations.push_back(found);
    choice.is_new = true;
  }
  Lengthened& lengthened = choice.lengthened.emplace();
  for (const size_t position : found->module().open) lengthened.scalars.push_back(sizes.numbers[position]);
  lengthened.scalars.push_back(LengthNumber(length));
  lengthened.program = std::move(found);
  return choice;
}

std::shared_ptr<LengthProgram> LengthFamilies::Make(Family& family, int64_t length, std::vector<size_t> open) {
  const std::shared_ptr<const Program> first = family.first_program.lock();
  if (first == nullptr || family.computations.size() == kComputations) return nullptr;
  const Result<std::string> shorter = hlo::WithoutLayouts(first->CallersModule());
  if (!shorter.ok()) return nullptr;
  const int64_t least = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length) + kBeyond));
  for (int64_t room = RoomFor(length); room >= least; room /= 2) {
    Result<hlo::LengthModule> made = hlo::WithLengthAsParameter(*shorter, family.longer_module, room, open);
    if (!made.ok() || length > made->longest || made->open.size() > kNumbers) return nullptr;
    if (!LengthProgram::CanResize(*made)) return nullptr;
    const int64_t most = std::max(kMostBytes, room == least ? kMostTimes * GrowingBytes(*made, length) : 0);
    if (GrowingBytes(*made, room) > most) continue;
    std::vector<hlo::ModuleNumber> scalars;
    for (const size_t position : made->open) scalars.push_back(family.first.numbers[position]);
    scalars.push_back(LengthNumber(*hlo::LengthOf(family.first, *family.longer, family.first)));
    return std::make_shared<LengthProgram>(*std::move(made), first, std::move(scalars));
  }
  return nullptr;
}

void LengthFamilies::Made(uint64_t id, const std::shared_ptr<const Program>& program) {
  std::lock_guard lock(mutex_);
  for (Family& family : families_) {
    if (family.id == id) family.first_program = program;
  }
}

}  // namespace pathways::compiled
