// Api: a loaded PJRT plugin and the one place through which its C functions are called.
//
// Ownership: shared; everything made through a plugin keeps its Api alive. The library itself is never unloaded:
//            plugins start threads and register atexit handlers, so dlclose is unsafe.
// Threads:   immutable after Load; the C API is thread-safe, so every method may be called from any thread.
//
// Call fills the struct size, checks that the plugin is new enough to have the function, and turns the returned
// PJRT_Error into a Status and frees it. No other file of this room touches a PJRT_Error.
#ifndef PTPATHWAYS_PJRT_API_H_
#define PTPATHWAYS_PJRT_API_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "csrc/base/status.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

class Api {
 public:
  // Opens the plugin at `path`, reads its table and initializes it.
  // NOT_FOUND: no such file. INVALID_ARGUMENT: not a loadable library, or no GetPjrtApi in it.
  // FAILED_PRECONDITION: another major version of the C API.
  static Result<std::shared_ptr<Api>> Load(const std::string& path);

  // The same over a table already at hand, which must outlive the result. `origin` names it in errors.
  static Result<std::shared_ptr<Api>> Wrap(const PJRT_Api* table, std::string origin);

  // api.Call<&PJRT_Api::PJRT_Event_Await>(&args): fills args->struct_size, calls, gives the outcome.
  // UNIMPLEMENTED, naming the function, when the plugin does not have it.
  template <auto Slot, typename Args>
  Status Call(Args* args) const {
    const auto function = Lookup<Slot>();
    if (function == nullptr) return Missing(SlotOffset<Slot>());
    args->struct_size = PjrtStructSize<Args>::value;
    if constexpr (std::is_void_v<decltype(function(args))>) {
      function(args);
      return OkStatus();
    } else {
      PJRT_Error* const error = function(args);
      return error == nullptr ? OkStatus() : TakeError(error);
    }
  }

  template <auto Slot>
  bool Has() const {
    return Lookup<Slot>() != nullptr;
  }

  // Turns an error into a Status and frees it. Null gives OK. Never throws.
  Status TakeError(PJRT_Error* error) const;

  // The first extension of this type, or null. The caller casts it to the extension's struct and checks struct_size.
  const PJRT_Extension_Base* FindExtension(PJRT_Extension_Type type) const;

  const std::string& origin() const { return origin_; }
  int major_version() const { return table_->pjrt_api_version.major_version; }
  int minor_version() const { return table_->pjrt_api_version.minor_version; }
  // "C API 0.106, stablehlo_current_version 1.13.0, xla_version 2": what tells builds of a plugin apart before a client
  // is there.
  std::string VersionText() const;
  const PJRT_Api* table() const { return table_; }

 private:
  Api(const PJRT_Api* table, std::string origin) : table_(table), origin_(std::move(origin)) {}

  template <auto Slot>
  size_t SlotOffset() const {
    return static_cast<size_t>(reinterpret_cast<const char*>(&(table_->*Slot)) - reinterpret_cast<const char*>(table_));
  }
  // The function in `Slot`, or null when the plugin's table is too short for it or leaves it empty.
  template <auto Slot>
  auto Lookup() const {
    using Function = std::remove_cvref_t<decltype(table_->*Slot)>;
    return SlotOffset<Slot>() + sizeof(Function) <= table_->struct_size ? table_->*Slot : Function{nullptr};
  }
  Status Missing(size_t slot_offset) const;
  void DestroyError(PJRT_Error* error) const;

  const PJRT_Api* const table_;
  const std::string origin_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_API_H_
