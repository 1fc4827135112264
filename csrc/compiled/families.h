// ModuleFamilies: which modules share one computation, because they differ in numbers only (hlo/numbers.h).
//
// The first module of a family is compiled as it is: most programs have no other. When one comes that differs from it,
// the numbers in which they differ become parameters, and all that differ there only run on that one computation. One
// that differs elsewhere, too, adds to the parameters. A family whose modules keep differing elsewhere is given up, and
// so is one whose common computation costs more than a special one: a slice of which XLA knows the start may need a
// part of what is computed before it, and a dynamic slice needs all. A module finds the same computation whenever it
// comes again, unless its family was given up.
//
// Ownership: programs are held weakly. Threads: every method may be called from any thread. Locks: one, for the table.
#ifndef PTPATHWAYS_COMPILED_FAMILIES_H_
#define PTPATHWAYS_COMPILED_FAMILIES_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/hlo/numbers.h"

namespace pathways::compiled {

struct Program;

// What is compiled for a module.
struct Chosen {
  std::string module;
  std::vector<hlo::ModuleNumber> numbers;  // the arguments behind its own
  bool is_new = false;                     // nothing was compiled for it before, as far as is remembered
  std::string family;                      // its name
  // Where a common computation is met again and nobody has compared it yet: a program of it, and one of the family's
  // first module.
  std::shared_ptr<const Program> common, special;
};

class ModuleFamilies {
 public:
  static constexpr size_t kFamilies = 4096;   // that are remembered; the one not met for longest is forgotten
  static constexpr size_t kComputations = 4;  // of a family, besides its first module
  static constexpr size_t kNumbers = 64;      // that a computation takes

  Result<Chosen> Choose(std::string_view module);
  // `program` is what was made of `chosen`.
  void Made(const Chosen& chosen, const std::shared_ptr<const Program>& program);
  // The common computation of `chosen` was compared with the special one: it is not asked again, and with `worse` the
  // family is given up.
  void Compared(const Chosen& chosen, bool worse);

 private:
  struct Computation {
    std::vector<size_t> open;  // ascending
    std::string module;
    std::weak_ptr<const Program> program;
    bool compared = false;
  };
  struct Family {
    std::string name;          // a hash of its skeleton
    std::string first_module;  // a hash of it
    std::vector<hlo::ModuleNumber> first;
    std::weak_ptr<const Program> first_program;
    std::vector<Computation> computations;
    bool given_up = false;
  };

  Family* Find(const std::string& name) PW_REQUIRES(mutex_);
  static Computation* Find(Family& family, const std::string& module);

  std::mutex mutex_;
  std::list<Family> families_ PW_GUARDED_BY(mutex_);  // the one met last first
  std::unordered_map<std::string, std::list<Family>::iterator> by_name_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_FAMILIES_H_
