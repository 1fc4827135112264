// LengthFamilies: which modules share a computation for all lengths (length_program.h).
//
// A loop that appends to an array (the cache of a decoder) is a module for each length. When a second one comes whose
// sizes are larger by one, a computation of bounded size is made; from then on every module of the kind up to that
// bound runs on it.
//
// Ownership: a family holds its first program weakly, and its computations, which programs share.
// Threads:   every method may be called from any thread.
// Locks:     one, for the table, a leaf.
#ifndef PTPATHWAYS_COMPILED_LENGTH_FAMILIES_H_
#define PTPATHWAYS_COMPILED_LENGTH_FAMILIES_H_

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/compiled/length_program.h"
#include "csrc/hlo/lengths.h"

namespace pathways::compiled {

struct Program;

// What a module runs on in the place of its own program.
struct Lengthened {
  std::shared_ptr<LengthProgram> program;
  std::vector<hlo::ModuleNumber> scalars;  // the numbers that are arguments, and the length
};

class LengthFamilies {
 public:
  static constexpr size_t kFamilies = 256;         // that are remembered; the one not met for longest is forgotten
  static constexpr size_t kComputations = 16;      // of a family
  static constexpr size_t kNumbers = 64;           // that a computation takes
  static constexpr size_t kModuleBytes = 1 << 24;  // of a module that is looked at
  static constexpr int64_t kLeastRoom = 128;
  // Of arrays that grow: bytes with their room, or if that is the least room, as many times what they take without.
  static constexpr int64_t kMostBytes = 1 << 24, kMostTimes = 3;

  struct Choice {
    std::optional<Lengthened> lengthened;
    bool is_new = false;  // the computation was made for this module
    uint64_t begins = 0;  // the family that the module is the first of: Made is to be called
  };
  Choice Choose(std::string_view module);
  void Made(uint64_t family, const std::shared_ptr<const Program>& program);

  // The size that a growing dimension of that length gets.
  static int64_t RoomFor(int64_t length);

 private:
  struct Family {
    uint64_t id = 0;
    std::string name;  // a hash of its skeleton
    hlo::ModuleSizes first;
    std::weak_ptr<const Program> first_program;
    std::optional<hlo::ModuleSizes> longer;  // the one that showed how it grows
    std::string longer_module;
    std::vector<std::shared_ptr<LengthProgram>> computations;
    bool given_up = false;
  };

  // Nothing, null: it cannot be made.
  std::optional<Choice> At(Family& family, const hlo::ModuleSizes& sizes, int64_t length) PW_REQUIRES(mutex_);
  static std::shared_ptr<LengthProgram> Make(Family& family, int64_t length, std::vector<size_t> open);

  std::mutex mutex_;
  std::list<Family> families_ PW_GUARDED_BY(mutex_);  // the one met last first
  uint64_t next_id_ PW_GUARDED_BY(mutex_) = 1;
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_LENGTH_FAMILIES_H_
