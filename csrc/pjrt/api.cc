#include "csrc/pjrt/api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "csrc_generated/pjrt_abi_check.h"

#include "csrc/base/thread_annotations.h"

namespace pathways::pjrt {
namespace {

// Plugins by their table: one Plugin_Initialize per process each. Leaked, so that no destructor runs while the plugin's
// own threads still do.
struct Registry {
  std::mutex mutex;
  std::map<const PJRT_Api*, std::shared_ptr<Api>> by_table PW_GUARDED_BY(mutex);
};

Registry& GlobalRegistry() {
  static auto* registry = new Registry();
  return *registry;
}

constexpr size_t kSlots = std::size(kPjrtSlotNames);

}  // namespace

Result<std::shared_ptr<Api>> Api::Load(const std::string& path) {
  if (path.find('/') != std::string::npos && access(path.c_str(), R_OK) != 0) {
    return NotFound("expected a readable PJRT plugin at " + path + ", found none; check the plugin's path");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return InvalidArgument("expected a loadable PJRT plugin at " + path + ", got: " + dlerror());
  }
  auto* const get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    dlclose(library);
    return InvalidArgument("expected the function GetPjrtApi in " + path +
                           ", found none: this library is not a PJRT plugin");
  }
  return Wrap(get_api(), path);
}

Result<std::shared_ptr<Api>> Api::Wrap(const PJRT_Api* table, std::string origin) {
  if (table == nullptr || table->struct_size < kPjrtFirstSlotOffset) {
    return FailedPrecondition("expected a PJRT function table from " + origin + ", got none");
  }
  const int major = table->pjrt_api_version.major_version;
  if (major != PJRT_API_MAJOR) {
    return FailedPrecondition("expected major version " + std::to_string(PJRT_API_MAJOR) + " of the PJRT C API from " +
                              origin + ", got " + std::to_string(major) + "; use a plugin built for that version");
  }
  Registry& registry = GlobalRegistry();
  std::lock_guard lock(registry.mutex);
  if (auto known = registry.by_table.find(table); known != registry.by_table.end()) return known->second;
  std::shared_ptr<Api> api(new Api(table, std::move(origin)));
  PJRT_Plugin_Initialize_Args args{};
  if (api->Has<&PJRT_Api::PJRT_Plugin_Initialize>()) {
    PW_RETURN_IF_ERROR(
        api->Call<&PJRT_Api::PJRT_Plugin_Initialize>(&args).WithPrefix("initializing the PJRT plugin " + api->origin_));
  }
  registry.by_table.emplace(table, api);
  return api;
}

Status Api::TakeError(PJRT_Error* error) const {
  if (error == nullptr) return OkStatus();
  Code code = Code::kUnknown;
  if (const auto get_code = Lookup<&PJRT_Api::PJRT_Error_GetCode>(); get_code != nullptr) {
    PJRT_Error_GetCode_Args args{};
    args.struct_size = PjrtStructSize<PJRT_Error_GetCode_Args>::value;
    args.error = error;
    PJRT_Error* const second = get_code(&args);
    const auto number = static_cast<int32_t>(args.code);
    // An error that claims to be OK must not turn into success.
    if (second == nullptr && IsKnownCode(number) && number != 0) code = static_cast<Code>(number);
    if (second != nullptr) DestroyError(second);
  }
  std::string message;
  if (const auto get_message = Lookup<&PJRT_Api::PJRT_Error_Message>(); get_message != nullptr) {
    PJRT_Error_Message_Args args{};
    args.struct_size = PjrtStructSize<PJRT_Error_Message_Args>::value;
    args.error = error;
    get_message(&args);
    if (args.message != nullptr) message.assign(args.message, args.message_size);
  }
  DestroyError(error);
  return Status(code, std::move(message));
}

void Api::DestroyError(PJRT_Error* error) const {
  const auto destroy = Lookup<&PJRT_Api::PJRT_Error_Destroy>();
  if (destroy == nullptr) return;
  PJRT_Error_Destroy_Args args{};
  args.struct_size = PjrtStructSize<PJRT_Error_Destroy_Args>::value;
  args.error = error;
  destroy(&args);
}

std::string Api::VersionText() const {
  std::string text = "C API " + std::to_string(major_version()) + "." + std::to_string(minor_version());
  PJRT_Plugin_Attributes_Args args{};
  if (!Call<&PJRT_Api::PJRT_Plugin_Attributes>(&args).ok()) return text;
  std::vector<std::string> attributes;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    std::string shown;
    if (value.type == PJRT_NamedValue_kInt64) {
      shown = std::to_string(value.int64_value);
    } else if (value.type == PJRT_NamedValue_kInt64List) {
      for (size_t k = 0; k < value.value_size; ++k) {
        shown += (k ? "." : "") + std::to_string(value.int64_array_value[k]);
      }
    } else if (value.type == PJRT_NamedValue_kString) {
      shown.assign(value.string_value, value.value_size);
    } else {
      continue;  // switches and factors are no version
    }
    attributes.push_back(std::string(value.name, value.name_size) + " " + shown);
  }
  std::sort(attributes.begin(), attributes.end());
  for (const std::string& attribute : attributes) text += ", " + attribute;
  return text;
}

const PJRT_Extension_Base* Api::FindExtension(PJRT_Extension_Type type) const {
  for (const PJRT_Extension_Base* base = table_->extension_start; base != nullptr; base = base->next) {
    if (base->type == type) return base;
  }
  return nullptr;
}

Status Api::Missing(size_t slot_offset) const {
  const size_t slot = (slot_offset - kPjrtFirstSlotOffset) / sizeof(void*);
  return Unimplemented("expected " + std::string(slot < kSlots ? kPjrtSlotNames[slot] : "a newer function") +
                       " in the PJRT plugin " + origin_ + ", which has C API " + std::to_string(major_version()) + "." +
                       std::to_string(minor_version()) + " without it; use a newer plugin");
}

}  // namespace pathways::pjrt
