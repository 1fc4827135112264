// Entry: how a slot of the PJRT table is made from a function that returns a Status.
//
// Threads: none of its own; every slot may be called from any thread.
//
// The caller's args struct begins with its size, and callers of other versions of the C API pass shorter or longer
// ones. An entry refuses a struct that ends before the last field it needs and a null handle, converts the Status into
// a PJRT_Error, and lets no exception out. Fields after the last needed one are read or written only through Has().
#ifndef PTPATHWAYS_PLUGIN_ENTRY_H_
#define PTPATHWAYS_PLUGIN_ENTRY_H_

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "csrc/base/process.h"
#include "csrc/base/status.h"
#include "csrc/plugin/error.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::plugin {

// Bytes of `args` up to and including `field`.
template <typename Args, typename Field>
size_t EndOf(const Args* args, Field Args::* field) {
  return static_cast<size_t>(reinterpret_cast<const char*>(&(args->*field)) - reinterpret_cast<const char*>(args)) +
         sizeof(Field);
}

// Whether the caller's struct is long enough to hold `field`.
template <typename Args, typename Field>
bool Has(const Args* args, Field Args::* field) {
  return args->struct_size >= EndOf(args, field);
}

// A name as a template argument.
template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&from)[N]) {  // NOLINT: implicit by design
    for (size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};

template <typename T>
struct ArgsOf;
template <typename Args>
struct ArgsOf<Status (*)(Args*)> {
  using type = Args;
};

// What every entry checks: a struct, long enough, and (when its first field after the header is a handle) that handle.
Status CheckArgs(const char* name, const void* args, size_t size, size_t needed, bool has_handle, const void* handle);

// What to do with a call in a process that was forked from the client's, and has none of its threads: nothing where an
// object is let go, which is the parent's; refuse what would wait for an answer; what only tells something goes on.
enum class InFork { kGoesOn, kRefused, kIgnored };
constexpr InFork InForkOf(std::string_view name) {
  if (name.ends_with("_Destroy") || name.ends_with("_Delete")) return InFork::kIgnored;
  for (const std::string_view waits : {"Compile", "_BufferFromHostBuffer", "_CreateUninitializedBuffer", "_Execute",
                                       "_CreateBuffersForAsyncHostToDevice", "_ToHostBuffer", "_CopyToDevice",
                                       "_CopyToMemory", "_CopyRawToHost", "_DeserializeAndLoad", "_Await"}) {
    if (name.ends_with(waits)) return InFork::kRefused;
  }
  return InFork::kGoesOn;
}
Status RefusedInFork(const char* name);

template <Name kName, auto kImplementation, auto kLastNeeded, bool kHasHandle>
PJRT_Error* Entry(typename ArgsOf<decltype(kImplementation)>::type* args) noexcept {
  using Args = typename ArgsOf<decltype(kImplementation)>::type;
  constexpr size_t kHandleOffset = sizeof(size_t) + sizeof(void*);
  constexpr InFork kInFork = InForkOf(kName.text);
  try {
    if (kInFork != InFork::kGoesOn && ForkedFrom() != 0) {
      return kInFork == InFork::kIgnored ? nullptr : NewError(RefusedInFork(kName.text));
    }
    size_t size = 0, needed = 0;
    const void* handle = nullptr;
    if (args != nullptr) {
      size = args->struct_size;
      needed = EndOf<Args>(args, kLastNeeded);
      if constexpr (kHasHandle) {
        static_assert(sizeof(Args) >= kHandleOffset + sizeof(void*));
        if (size >= needed)
          handle = *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(args) + kHandleOffset);
      }
    }
    if (Status status = CheckArgs(kName.text, args, size, needed, kHasHandle, handle); !status.ok()) {
      return NewError(std::move(status));
    }
    return NewError(kImplementation(args));
  } catch (const std::bad_alloc&) {
    return NewError(ResourceExhausted(std::string(kName.text) + ": out of host memory"));
  } catch (const std::exception& error) {
    return NewError(Internal(std::string(kName.text) + ": " + error.what()));
  }
}

// A slot that this plugin does not implement: says so, by name.
template <Name kName, typename Args>
PJRT_Error* MissingEntry(Args*) noexcept {
  return NewError(Unimplemented(std::string(kName.text) + " is not implemented by the pathways plugin"));
}

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_ENTRY_H_
