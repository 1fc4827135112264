// The simulated compiler: what a module takes and gives on each device, whether its devices must meet, and what it
// costs. It reads the module as a worker would be given it and translates nothing.
//
// Ownership: keeps what it read, by the module's bytes, since all hosts of a slice are given the same ones.
// Threads: none inside; one thread.
#ifndef PTPATHWAYS_SIM_COMPILER_H_
#define PTPATHWAYS_SIM_COMPILER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/wire/bodies.h"

namespace pathways::sim {

// Which computations over several devices occupy them all at once.
enum class Meeting : uint8_t {
  kAlways,    // every one: what a partitioner may insert is unknown before it ran
  kExplicit,  // those whose module itself names a collective
  kNever,
};

// Cost by name: the first rule whose pattern fits ("*" stands for any text).
struct CostRule {
  std::string pattern;
  double cost_us = 0;
};

struct CompilerOptions {
  std::vector<CostRule> costs;
  double default_cost_us = 10;
  double collective_us = 0;  // on top, for computations whose devices meet
  Meeting meeting = Meeting::kAlways;
};

bool Fits(std::string_view pattern, std::string_view name);

struct Compiled {
  std::vector<TensorType> parameters;  // per device, as far as the module says how they are sharded
  std::vector<TensorType> outputs;     // per device
  std::string output_sharding;         // as the module says: nothing is propagated here
  bool collective = false;
};

class Compiler {
 public:
  using Bytes = std::shared_ptr<const std::string>;

  explicit Compiler(CompilerOptions options) : options_(std::move(options)) {}

  // For a function over so many devices. INVALID_ARGUMENT when the module cannot be read. How it is sharded is read
  // from "hlo" only; of "mlir" (as text) the types are taken to be those of one device.
  Result<std::shared_ptr<const Compiled>> Compile(const wire::Register& request, size_t devices, const Bytes& module);
  int64_t CostNs(const std::string& name, bool meets) const;
  bool Meets(const wire::Register& request, size_t devices, const Compiled& compiled) const;
  // Puts a rule before all others; for functions registered from now on.
  void AddRule(CostRule rule) { options_.costs.insert(options_.costs.begin(), std::move(rule)); }

 private:
  struct Entry {
    Bytes module;
    size_t partitions;
    std::shared_ptr<const Compiled> compiled;
  };
  CompilerOptions options_;
  std::deque<Entry> recent_;
};

// The type that one device holds of a value of type `whole` under an OpSharding's bytes (xla_data.proto); `whole`
// itself for a replicated value.
Result<TensorType> ShardType(const TensorType& whole, std::string_view op_sharding);

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_COMPILER_H_
