// Has PyTorch/XLA's hash of a graph say which value is used where.
//
// PyTorch/XLA finds a compiled computation by a hash of the graph. A node's hash is made of its operation and its
// operands' hashes, and all inputs of one shape have the same. To these it adds in which order distinct inputs are met,
// once each. So `x * w + v + w` and `x * w + w + v` have one hash: the second formula was computed with the first one's
// wiring. The same holds of what is computed from inputs.
//
// The list of inputs comes from a function of torch, which PyTorch/XLA calls through its table of imported functions,
// and is used for nothing but the hash. The entry of that table is replaced here by a function that calls torch's and
// adds where each node's operands and the results are in the order of the nodes. With that, graphs of one hash are one
// graph.
//
// Threads: `ptpathways_distinguish_graphs` is called by the thread that initialises the front end, before anything is
// traced. `RunPostOrder` is called by any thread, and has no state.

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <torch/csrc/lazy/core/ir.h>
#include <torch/csrc/lazy/core/lazy_graph_executor.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "torch_kernels/replace.h"

namespace ptpathways {
namespace {

// Makes two protected types of torch known here.
struct Executor : torch::lazy::LazyGraphExecutor {
  using torch::lazy::LazyGraphExecutor::PostOrderData;
  using torch::lazy::LazyGraphExecutor::SyncTensorCollection;
};

using Values = std::vector<torch::lazy::Value>;
// A member function takes its object as the first argument.
using PostOrderFunction = Executor::PostOrderData (*)(torch::lazy::LazyGraphExecutor*, const Values&,
                                                      Executor::SyncTensorCollection*);

constexpr char kRunPostOrder[] =
    "_ZN5torch4lazy17LazyGraphExecutor12RunPostOrderERKSt6vectorINS0_5ValueESaIS3_EEPNS1_20SyncTensorCollectionE";

PostOrderFunction torchs_post_order = nullptr;

// Numbers of nodes by their addresses. Open addressing: a graph of 5,000 nodes is looked at in 0.1 ms.
class Places {
 public:
  explicit Places(const std::vector<const torch::lazy::Node*>& nodes) {
    size_t size = 16;
    while (size < 2 * nodes.size()) size *= 2;
    entries_.resize(size);
    for (size_t place = 0; place < nodes.size(); ++place) Find(nodes[place]) = {nodes[place], place};
  }

  size_t Of(const torch::lazy::Node* node) { return Find(node).second; }

 private:
  std::pair<const torch::lazy::Node*, size_t>& Find(const torch::lazy::Node* node) {
    const size_t mask = entries_.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(node) * 0x9E3779B97F4A7C15u) >> 20;
    while (entries_[at & mask].first != nullptr && entries_[at & mask].first != node) ++at;
    return entries_[at & mask];
  }

  std::vector<std::pair<const torch::lazy::Node*, size_t>> entries_;
};

Executor::PostOrderData RunPostOrder(torch::lazy::LazyGraphExecutor* executor, const Values& results,
                                     Executor::SyncTensorCollection* collection) {
  Executor::PostOrderData found = torchs_post_order(executor, results, collection);
  Places places(found.post_order);
  std::vector<size_t>& sequence = found.parameter_sequence;
  uint64_t wiring = found.post_order.size();
  const auto add = [&](const torch::lazy::Output& used) {
    wiring = (wiring ^ (places.Of(used.node) * 64 + used.index)) * 0x9E3779B97F4A7C15u;
    wiring ^= wiring >> 29;
  };
  for (const torch::lazy::Node* node : found.post_order) {
    for (const torch::lazy::Output& operand : node->operands()) {
      if (operand.node != nullptr) add(operand);
    }
  }
  for (const torch::lazy::Value& result : results) add(torch::lazy::Output(result.node.get(), result.index));
  sequence.push_back(wiring);
  return found;
}

// What of a loaded library is needed to find an entry of its table of imported functions.
struct Library {
  ElfW(Addr) base;
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * relocations = nullptr;
  size_t relocation_count = 0;
};

Library Describe(const link_map& map) {
  Library library{.base = map.l_addr};
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_STRTAB:
        library.names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        break;
      case DT_SYMTAB:
        library.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        break;
      case DT_JMPREL:
        library.relocations = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        library.relocation_count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
    }
  }
  return library;
}

// The entry of the table, or nullptr.
void** FindImported(const Library& library) {
  if (library.names == nullptr || library.symbols == nullptr || library.relocations == nullptr) return nullptr;
  for (size_t place = 0; place < library.relocation_count; ++place) {
    const ElfW(Rela) & relocation = library.relocations[place];
    const ElfW(Sym) & symbol = library.symbols[ELF64_R_SYM(relocation.r_info)];
    if (std::strcmp(library.names + symbol.st_name, kRunPostOrder) == 0) {
      return reinterpret_cast<void**>(library.base + relocation.r_offset);
    }
  }
  return nullptr;
}

}  // namespace
}  // namespace ptpathways

// Has graphs that differ only in which value is used where get different hashes. `path`: of PyTorch/XLA's extension,
// which the process has loaded. False: `error` says why not, and nothing was changed. A second call changes nothing.
extern "C" __attribute__((visibility("default"))) bool ptpathways_distinguish_graphs(const char* path, char* error,
                                                                                     size_t size) {
  using namespace ptpathways;
  if (torchs_post_order != nullptr) return true;
  void* handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
    std::snprintf(error, size, "%s is not loaded", path);
    return false;
  }
  void** entry = FindImported(Describe(*map));
  dlclose(handle);
  // It must be torch's function already: an entry that the first call fills lies in a page that stays writable.
  Dl_info callee;
  if (entry == nullptr || dladdr(*entry, &callee) == 0 || callee.dli_sname == nullptr ||
      std::strcmp(callee.dli_sname, kRunPostOrder) != 0) {
    std::snprintf(error, size, "%s does not call torch's LazyGraphExecutor::RunPostOrder as release 2.9.0 does", path);
    return false;
  }
  torchs_post_order = reinterpret_cast<PostOrderFunction>(*entry);
  if (!Replace(entry, reinterpret_cast<void*>(&RunPostOrder))) {
    torchs_post_order = nullptr;
    std::snprintf(error, size, "a page of %s cannot be written: %s", path, std::strerror(errno));
    return false;
  }
  return true;
}
