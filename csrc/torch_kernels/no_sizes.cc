// Gives the sizes of a tensor without dimensions an address.
//
// `loss[1]` of such a tensor is an error, and torch compares the index with the tensor's first size to find it
// (`applySelect` of TensorIndexing.h). There is no first size. Tensors of the CPU have room for one, where torch reads
// what happens to be there; the sizes of a device tensor are an empty list at address 0, and the process ended.
//
// Python holds PyTorch/XLA's tensors in wrappers of functionalization, whose sizes come from a virtual function. Its
// entry in the table of that class is replaced here by a function that calls torch's and, where there are no sizes,
// returns none at an address that can be read.
//
// A tensor whose value was lost with a step that could not be compiled has no sizes, and PyTorch/XLA raises an error,
// which is put in words here. Where autograd notes the sizes of a parameter it may not be thrown
// (Node::add_input_metadata is noexcept), and the process ended. None are returned there, and the operation that
// autograd prepares raises the error.
//
// Threads: `ptpathways_give_sizes_an_address` is called by the thread that initialises the front end. The function in
// the table is called by any thread, and has no state.

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/SymInt.h>
#include <dlfcn.h>
#include <link.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "torch_kernels/replace.h"

namespace ptpathways {
namespace {

// A member function takes its object as the first argument.
using SizesFunction = c10::SymIntArrayRef (*)(const at::FunctionalTensorWrapper*);

constexpr char kSizes[] = "_ZNK2at23FunctionalTensorWrapper16sym_sizes_customEv";
constexpr char kVirtualTable[] = "_ZTVN2at23FunctionalTensorWrapperE";

// What PyTorch/XLA says of a tensor whose value was lost.
constexpr char kLost[] = "Check failed: data()->tensor_data";

SizesFunction torchs_sizes = nullptr;

// Whether the code at this address is that of InputMetadata(const at::Tensor&).
bool NotesMetadata(const void* address) {
  Dl_info function;
  return dladdr(address, &function) != 0 && function.dli_sname != nullptr &&
         std::string_view(function.dli_sname).starts_with("_ZN5torch8autograd13InputMetadataC");
}

c10::SymIntArrayRef Sizes(const at::FunctionalTensorWrapper* tensor) {
  static const c10::SymInt readable(0);
  const c10::SymIntArrayRef none(&readable, static_cast<size_t>(0));
  try {
    const c10::SymIntArrayRef sizes = torchs_sizes(tensor);
    return sizes.empty() ? none : sizes;
  } catch (const c10::Error& error) {
    if (NotesMetadata(__builtin_return_address(0))) return none;
    const char* const said = error.what_without_backtrace();
    TORCH_CHECK(
        std::string_view(said).find(kLost) == std::string_view::npos,
        "a tensor has neither a value nor a computation: it was traced together with an operation that could "
        "not be compiled, and PyTorch/XLA lost all that was traced with it, parameters and optimizer state that "
        "it wrote, too. Let go of these tensors, make them anew, and load their values from a checkpoint "
        "(PyTorch/XLA said: ",
        kLost, ")");
    throw;
  }
}

// The entry of the table of virtual functions that holds `function`, or nullptr.
void** FindVirtual(void* table, const void* function) {
  Dl_info unused;
  void* symbol = nullptr;
  // The linker knows how large the table is.
  if (dladdr1(table, &unused, &symbol, RTLD_DL_SYMENT) == 0 || symbol == nullptr) return nullptr;
  const size_t entries = static_cast<const ElfW(Sym)*>(symbol)->st_size / sizeof(void*);
  void** first = static_cast<void**>(table);
  for (void** entry = first; entry != first + entries; ++entry) {
    if (*entry == function) return entry;
  }
  return nullptr;
}

}  // namespace
}  // namespace ptpathways

// Has an index of a tensor without dimensions be an error. False: `error` says why it cannot, and nothing was changed.
// A second call changes nothing. The first argument is not used.
extern "C" __attribute__((visibility("default"))) bool ptpathways_give_sizes_an_address(const char*, char* error,
                                                                                        size_t size) {
  using namespace ptpathways;
  if (torchs_sizes != nullptr) return true;
  void* function = dlsym(RTLD_DEFAULT, kSizes);
  void* table = dlsym(RTLD_DEFAULT, kVirtualTable);
  void** entry = function == nullptr || table == nullptr ? nullptr : FindVirtual(table, function);
  if (entry == nullptr) {
    std::snprintf(error, size, "torch has no FunctionalTensorWrapper::sym_sizes_custom as release 2.9.0 has");
    return false;
  }
  torchs_sizes = reinterpret_cast<SizesFunction>(function);
  if (!Replace(entry, reinterpret_cast<void*>(&Sizes))) {
    torchs_sizes = nullptr;
    std::snprintf(error, size, "a page of torch's library cannot be written: %s", std::strerror(errno));
    return false;
  }
  return true;
}
