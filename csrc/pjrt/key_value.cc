#include "csrc/pjrt/key_value.h"

#include <algorithm>
#include <string_view>

namespace pathways::pjrt {
namespace {

// The plugin's way to make one of its errors: the args carry a pointer to it, as the C API declares it.
using MakeError = PJRT_Error* (*)(PJRT_Error_Code code, const char* message, size_t message_size);

PJRT_Error* ToError(void* callback_error, const Status& status) {
  if (status.ok()) return nullptr;
  const std::string_view message = status.message();
  return (*static_cast<MakeError*>(callback_error))(static_cast<PJRT_Error_Code>(status.code()), message.data(),
                                                    message.size());
}

void Delete(char* value) { delete[] value; }

// Gives the plugin a copy, which it hands back to Delete.
template <typename Args>
PJRT_Error* Answer(Args* args, const Result<std::string>& value) {
  if (!value.ok()) return ToError(args->callback_error, value.status());
  char* copy = new char[value->size() + 1];  // never of no size
  std::copy(value->begin(), value->end(), copy);
  copy[value->size()] = '\0';
  args->value = copy;
  args->value_size = value->size();
  args->value_deleter_callback = reinterpret_cast<void*>(&Delete);
  return nullptr;
}

template <typename Args>
KeyValueStore* StoreOf(const Args* args) {
  return static_cast<KeyValueStore*>(args->user_arg);
}

template <typename Args>
std::string KeyOf(const Args* args) {
  return std::string(args->key, args->key_size);
}

PJRT_Error* OnGet(PJRT_KeyValueGetCallback_Args* args) {
  const std::chrono::milliseconds timeout(std::max(args->timeout_in_ms, 0));
  return Answer(args, StoreOf(args)->Get(KeyOf(args), timeout));
}

PJRT_Error* OnTryGet(PJRT_KeyValueTryGetCallback_Args* args) {
  return Answer(args, StoreOf(args)->TryGet(KeyOf(args)));
}

PJRT_Error* OnPut(PJRT_KeyValuePutCallback_Args* args) {
  std::string value(static_cast<const char*>(args->value), args->value_size);
  return ToError(args->callback_error, StoreOf(args)->Put(KeyOf(args), std::move(value)));
}

}  // namespace

void SetCallbacks(KeyValueStore* store, PJRT_Client_Create_Args* args) {
  args->kv_get_callback = reinterpret_cast<void*>(&OnGet);
  args->kv_get_user_arg = store;
  args->kv_try_get_callback = reinterpret_cast<void*>(&OnTryGet);
  args->kv_try_get_user_arg = store;
  args->kv_put_callback = reinterpret_cast<void*>(&OnPut);
  args->kv_put_user_arg = store;
}

}  // namespace pathways::pjrt
