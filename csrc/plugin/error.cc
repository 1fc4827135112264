#include "csrc/plugin/error.h"

#include <deque>
#include <mutex>
#include <utility>

#include "csrc/base/thread_annotations.h"
#include "csrc/plugin/entry.h"

namespace pathways::plugin {
namespace {

struct Error final : PJRT_Error {
  explicit Error(Status from) : status(std::move(from)) {}
  const Status status;
};

const Error* Unwrap(const PJRT_Error* error) { return static_cast<const Error*>(error); }

PJRT_Error_Code CodeOf(const PJRT_Error* error) {
  return error == nullptr ? PJRT_Error_Code_OK : static_cast<PJRT_Error_Code>(Unwrap(error)->status.code());
}

// Callers since C API 0.112 go through the error's own function table.
struct FunctionTable {
  size_t struct_size;
  size_t instance_size;
  PJRT_Extension_Base* extension_start;
  void (*destroy)(PJRT_Error*);
  void (*message)(const PJRT_Error*, const char**, size_t*);
  PJRT_Error_Code (*get_code)(const PJRT_Error*);
  void (*for_each_payload)(const PJRT_Error*, void* visitor, void* user_arg);
};
static_assert(sizeof(FunctionTable) == sizeof(PJRT_Error_FunctionTable));
static_assert(offsetof(FunctionTable, for_each_payload) == offsetof(PJRT_Error_FunctionTable, for_each_payload));

constexpr FunctionTable kTable = {
    sizeof(FunctionTable),
    sizeof(PJRT_Error),
    nullptr,
    [](PJRT_Error* error) { delete Unwrap(error); },
    [](const PJRT_Error* error, const char** message, size_t* size) {
      const std::string_view text = Unwrap(error)->status.message();
      *message = text.data();
      *size = text.size();
    },
    &CodeOf,
    [](const PJRT_Error*, void*, void*) {},
};

constexpr size_t kRememberedErrors = 32;

struct Outgoing {
  std::mutex mutex;
  std::deque<Status> statuses PW_GUARDED_BY(mutex);  // distinct, the newest first
};

Outgoing& TheOutgoing() {
  static Outgoing* const outgoing = new Outgoing;  // leaked: values fail during shutdown, too
  return *outgoing;
}

void Remember(const Status& status) {
  Outgoing& outgoing = TheOutgoing();
  std::lock_guard lock(outgoing.mutex);
  std::erase_if(outgoing.statuses, [&](const Status& other) { return other.message() == status.message(); });
  outgoing.statuses.push_front(status);
  if (outgoing.statuses.size() > kRememberedErrors) outgoing.statuses.pop_back();
}

}  // namespace

Status FindOutgoing(std::string_view text) {
  Outgoing& outgoing = TheOutgoing();
  std::lock_guard lock(outgoing.mutex);
  for (const Status& status : outgoing.statuses) {
    if (!status.message().empty() && text.find(status.message()) != std::string_view::npos) return status;
  }
  return OkStatus();
}

PJRT_Error* NewError(Status status) {
  if (status.ok()) return nullptr;
  Remember(status);
  Error* error = new Error(std::move(status));
  error->vtable = reinterpret_cast<const PJRT_Error_FunctionTable*>(&kTable);
  return error;
}

Status StatusFromC(PJRT_Error_Code code, const char* message, size_t message_size) {
  const int32_t number = static_cast<int32_t>(code);
  return Status(IsKnownCode(number) ? static_cast<Code>(number) : Code::kUnknown,
                message == nullptr ? std::string() : std::string(message, message_size));
}

Status RefusedInFork(const char* name) {
  return FailedPrecondition(std::string(name) + ": this process was forked from process " +
                            std::to_string(ForkedFrom()) +
                            ", which is part of a cluster, and cannot use its devices: threads are not forked; give it "
                            "values of the CPU, or start it with the method \"spawn\"");
}

Status CheckArgs(const char* name, const void* args, size_t size, size_t needed, bool has_handle, const void* handle) {
  if (args == nullptr) return InvalidArgument(std::string(name) + ": its args struct is null");
  if (size < needed) {
    return InvalidArgument(std::string(name) + ": expected an args struct of at least " + std::to_string(needed) +
                           " bytes, got " + std::to_string(size) + "; the caller was built for another C API");
  }
  if (has_handle && handle == nullptr) return InvalidArgument(std::string(name) + ": the object to act on is null");
  return OkStatus();
}

void Error_Destroy(PJRT_Error_Destroy_Args* args) noexcept {
  if (args != nullptr && Has(args, &PJRT_Error_Destroy_Args::error)) delete Unwrap(args->error);
}

void Error_Message(PJRT_Error_Message_Args* args) noexcept {
  if (args == nullptr || !Has(args, &PJRT_Error_Message_Args::message_size)) return;
  const std::string_view text = args->error == nullptr ? std::string_view() : Unwrap(args->error)->status.message();
  args->message = text.data() == nullptr ? "" : text.data();
  args->message_size = text.size();
}

PJRT_Error* Error_GetCode(PJRT_Error_GetCode_Args* args) noexcept {
  if (args != nullptr && Has(args, &PJRT_Error_GetCode_Args::code)) args->code = CodeOf(args->error);
  return nullptr;
}

PJRT_Error* Error_ForEachPayload(PJRT_Error_ForEachPayload_Args*) noexcept { return nullptr; }

}  // namespace pathways::plugin
