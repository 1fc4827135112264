// Puts custom calls of a kernel library (pjrt/kernel_calls.h) in place of those convolutions and products of matrices
// of a module that the library computes faster than what XLA has for a CPU.
//
// Threads: a function of bytes, and of what the kernel library can do on this machine.
#ifndef PTPATHWAYS_HLO_USE_KERNELS_H_
#define PTPATHWAYS_HLO_USE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace pathways::hlo {

// Name of the custom call that stands for each of them.
inline constexpr std::string_view kKernelCall = "pathways.kernel";

struct ModuleWithKernels {
  std::string module;
  size_t convolutions = 0;  // that the library computes
  size_t products = 0;      // that the library computes
  size_t left = 0;          // of both that remain XLA's
};

// Everything that the library can compute is for tests.
enum class Replace { kWhatIsFaster, kEverything };

// For a module that one device runs, not yet optimised: the calls are not partitioned. Each uses `threads` threads.
// INVALID_ARGUMENT for bytes that are not a module.
Result<ModuleWithKernels> UseKernels(std::string_view module, int64_t threads, Replace what = Replace::kWhatIsFaster);

// Whether the module counts some thousand operations besides convolutions and products. XLA's CPU client runs what
// counts less on the thread that submits it, and takes custom calls for nothing: the worker would answer nobody
// meanwhile.
Result<bool> CountsOtherWork(std::string_view module);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_USE_KERNELS_H_
