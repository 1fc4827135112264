// A PJRT plugin for tests: several processes with a cpu device each make one client together, as GPU and TPU hosts do.
//
// It stands on a cpu plugin (PW_TEST_PJRT_PLUGIN) and replaces what is different on such a platform: creating a client
// takes a node's number and blocks until all nodes have exchanged what they have; device numbers are those of all
// nodes; a computation is compiled for devices of all nodes, by each, and each runs its part. What these processes tell
// each other goes through the caller's key-value callbacks only. Collectives are refused, for there is nothing to serve
// them.
//
// Ownership: one client per process, never destroyed. Threads: any; Locks: Pod::mutex guards its tables.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "csrc/hlo/edit.h"
#include "csrc/pjrt/api.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/partition.h"

namespace pathways::testing {
namespace {

// Behind a PJRT_Error of ours.
struct Error {
  Status status;
};

const Error& ErrorOf(const void* error) { return *static_cast<const Error*>(error); }

constexpr int kTimeoutMs = 20000;

using GetCallback = PJRT_Error* (*)(PJRT_KeyValueGetCallback_Args*);
using TryGetCallback = PJRT_Error* (*)(PJRT_KeyValueTryGetCallback_Args*);
using PutCallback = PJRT_Error* (*)(PJRT_KeyValuePutCallback_Args*);
using MakeErrorCallback = PJRT_Error* (*)(PJRT_Error_Code code, const char* message, size_t message_size);

// A computation over several nodes.
struct Gang {
  std::string topic;
  std::set<int64_t> nodes;
};

struct Pod {
  const PJRT_Api* base = nullptr;
  std::shared_ptr<pjrt::Api> base_api;
  PJRT_Api table{};
  PJRT_Client_Create_Args callbacks{};
  int64_t node = 0, nodes = 1;
  std::vector<int64_t> device_counts{0};  // by node
  int64_t first_device = 0;
  std::mutex mutex;
  std::unordered_set<const void*> errors;  // ours, not the base plugin's
  std::map<PJRT_LoadedExecutable*, Gang> not_begun;
  std::map<std::string, int> compiles;  // so far, by their devices
};

Pod& ThePod() {
  static auto* pod = new Pod();
  return *pod;
}

PJRT_Error* ToError(const Status& status) {
  if (status.ok()) return nullptr;
  auto* error = new Error{status};
  std::lock_guard lock(ThePod().mutex);
  ThePod().errors.insert(error);
  return reinterpret_cast<PJRT_Error*>(error);
}

bool IsOurs(const void* error) {
  std::lock_guard lock(ThePod().mutex);
  return ThePod().errors.contains(error);
}

void ErrorDestroy(PJRT_Error_Destroy_Args* args) {
  if (!IsOurs(args->error)) return ThePod().base->PJRT_Error_Destroy(args);
  std::lock_guard lock(ThePod().mutex);
  ThePod().errors.erase(args->error);
  delete &ErrorOf(args->error);
}

void ErrorMessage(PJRT_Error_Message_Args* args) {
  if (!IsOurs(args->error)) return ThePod().base->PJRT_Error_Message(args);
  const std::string_view message = ErrorOf(args->error).status.message();
  args->message = message.data();
  args->message_size = message.size();
}

PJRT_Error* ErrorGetCode(PJRT_Error_GetCode_Args* args) {
  if (!IsOurs(args->error)) return ThePod().base->PJRT_Error_GetCode(args);
  args->code = static_cast<PJRT_Error_Code>(ErrorOf(args->error).status.code());
  return nullptr;
}

// --- the caller's key-value store

MakeErrorCallback make_error = [](PJRT_Error_Code code, const char* message, size_t size) {
  return ToError(Status(static_cast<Code>(code), std::string(message, size)));
};

Status TakeOurs(PJRT_Error* error) {
  if (error == nullptr) return OkStatus();
  const Status status = ErrorOf(error).status;
  PJRT_Error_Destroy_Args args{};
  args.error = error;
  ErrorDestroy(&args);
  return status;
}

template <typename Args>
std::string TakeValue(const Args& args) {
  std::string value(static_cast<const char*>(args.value), args.value_size);
  reinterpret_cast<void (*)(char*)>(args.value_deleter_callback)(static_cast<char*>(args.value));
  return value;
}

Status Put(const std::string& key, std::string value) {
  PJRT_KeyValuePutCallback_Args args{};
  args.struct_size = PjrtStructSize<PJRT_KeyValuePutCallback_Args>::value;
  args.key = key.data();
  args.key_size = key.size();
  args.value = value.data();
  args.value_size = value.size();
  args.callback_error = &make_error;
  args.user_arg = ThePod().callbacks.kv_put_user_arg;
  return TakeOurs(reinterpret_cast<PutCallback>(ThePod().callbacks.kv_put_callback)(&args));
}

Result<std::string> Get(const std::string& key) {
  PJRT_KeyValueGetCallback_Args args{};
  args.struct_size = PjrtStructSize<PJRT_KeyValueGetCallback_Args>::value;
  args.key = key.data();
  args.key_size = key.size();
  args.timeout_in_ms = kTimeoutMs;
  args.callback_error = &make_error;
  args.user_arg = ThePod().callbacks.kv_get_user_arg;
  PW_RETURN_IF_ERROR(TakeOurs(reinterpret_cast<GetCallback>(ThePod().callbacks.kv_get_callback)(&args)));
  return TakeValue(args);
}

Result<std::string> TryGet(const std::string& key) {
  PJRT_KeyValueTryGetCallback_Args args{};
  args.struct_size = PjrtStructSize<PJRT_KeyValueTryGetCallback_Args>::value;
  args.key = key.data();
  args.key_size = key.size();
  args.callback_error = &make_error;
  args.user_arg = ThePod().callbacks.kv_try_get_user_arg;
  PW_RETURN_IF_ERROR(TakeOurs(reinterpret_cast<TryGetCallback>(ThePod().callbacks.kv_try_get_callback)(&args)));
  return TakeValue(args);
}

// Gives every one of `nodes` what each of them has put under `topic`, in their order.
Result<std::vector<std::string>> Exchange(const std::string& topic, const std::set<int64_t>& nodes,
                                          const std::string& mine) {
  PW_RETURN_IF_ERROR(Put(topic + "/" + std::to_string(ThePod().node), mine));
  std::vector<std::string> all;
  for (const int64_t node : nodes) {
    PW_ASSIGN_OR_RETURN(std::string value, Get(topic + "/" + std::to_string(node)));
    all.push_back(std::move(value));
  }
  return all;
}

// --- what is different from a plugin of one process

Status MeetTheOthers(PJRT_Client* client) {
  Pod& pod = ThePod();
  if (pod.nodes == 1) return OkStatus();
  if (pod.callbacks.kv_get_callback == nullptr || pod.callbacks.kv_try_get_callback == nullptr ||
      pod.callbacks.kv_put_callback == nullptr) {
    return InvalidArgument("expected key-value callbacks for a client of several nodes, got none");
  }
  PJRT_Client_AddressableDevices_Args devices{};
  devices.client = client;
  PW_RETURN_IF_ERROR(pod.base_api->Call<&PJRT_Api::PJRT_Client_AddressableDevices>(&devices));
  std::set<int64_t> everyone;
  for (int64_t node = 0; node < pod.nodes; ++node) everyone.insert(node);
  PW_ASSIGN_OR_RETURN(const auto counts,
                      Exchange("devices", everyone, std::to_string(devices.num_addressable_devices)));
  const Result<std::string> absent = TryGet("nobody puts this");
  if (absent.status().code() != Code::kNotFound) return Internal("expected NOT_FOUND for a key that nobody has put");
  const Result<std::string> mine = TryGet("devices/" + std::to_string(pod.node));
  if (!mine.ok() || *mine != counts[static_cast<size_t>(pod.node)]) return Internal("expected what this node has put");
  pod.device_counts.clear();
  for (const std::string& count : counts) pod.device_counts.push_back(std::stoll(count));
  pod.first_device = std::accumulate(pod.device_counts.begin(), pod.device_counts.begin() + pod.node, int64_t{0});
  return OkStatus();
}

PJRT_Error* ClientCreate(PJRT_Client_Create_Args* args) {
  Pod& pod = ThePod();
  pod.callbacks = *args;
  std::vector<PJRT_NamedValue> options;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string name(option.name, option.name_size);
    if (name == "node_id") {
      pod.node = option.int64_value;
    } else if (name == "num_nodes") {
      pod.nodes = option.int64_value;
    } else {
      options.push_back(option);
    }
  }
  static constexpr std::string_view kDeviceCount = "cpu_device_count";
  PJRT_NamedValue one{};
  one.struct_size = PjrtStructSize<PJRT_NamedValue>::value;
  one.name = kDeviceCount.data();
  one.name_size = kDeviceCount.size();
  one.type = PJRT_NamedValue_kInt64;
  one.int64_value = 1;
  one.value_size = 1;
  options.push_back(one);
  PJRT_Client_Create_Args base{};
  base.create_options = options.data();
  base.num_options = options.size();
  Status status = pod.base_api->Call<&PJRT_Api::PJRT_Client_Create>(&base);
  if (status.ok()) status = MeetTheOthers(base.client);
  args->client = base.client;
  return ToError(status);
}

PJRT_Error* ClientPlatformName(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "pod";
  args->platform_name_size = 3;
  return nullptr;
}

PJRT_Error* DeviceDescriptionId(PJRT_DeviceDescription_Id_Args* args) {
  PJRT_Error* error = ThePod().base->PJRT_DeviceDescription_Id(args);
  if (error == nullptr) args->id += static_cast<int>(ThePod().first_device);
  return error;
}

int64_t NodeOf(int64_t device_id) {
  int64_t node = 0;
  for (int64_t first = ThePod().device_counts[0]; device_id >= first && node + 1 < ThePod().nodes;) {
    first += ThePod().device_counts[static_cast<size_t>(++node)];
  }
  return node;
}

Status CompileFor(PJRT_Client_Compile_Args* args, std::string_view module, std::string_view format,
                  std::string_view options) {
  PJRT_Program program = *args->program;
  program.code = const_cast<char*>(module.data());
  program.code_size = module.size();
  program.format = format.data();
  program.format_size = format.size();
  PJRT_Client_Compile_Args base = *args;
  base.program = &program;
  base.compile_options = options.data();
  base.compile_options_size = options.size();
  PW_RETURN_IF_ERROR(ThePod().base_api->Call<&PJRT_Api::PJRT_Client_Compile>(&base));
  args->executable = base.executable;
  return OkStatus();
}

Status Compile(PJRT_Client_Compile_Args* args) {
  Pod& pod = ThePod();
  const std::string_view module(args->program->code, args->program->code_size);
  const std::string_view format(args->program->format, args->program->format_size);
  const std::string_view options(args->compile_options, args->compile_options_size);
  PW_ASSIGN_OR_RETURN(const pjrt::CompileOptionsInfo info, pjrt::ReadCompileOptions(options));
  if (!info.device_assignment) return CompileFor(args, module, format, options);
  const int64_t local_devices = pod.device_counts[static_cast<size_t>(pod.node)];
  std::vector<int64_t> local;
  size_t shard = 0;  // the last one here
  const std::vector<int64_t>& ids = info.device_assignment->device_ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (pod.nodes > 1 && (ids[i] < pod.first_device || ids[i] >= pod.first_device + local_devices)) continue;
    local.push_back(ids[i] - pod.first_device);
    shard = i;
  }
  if (local.size() == ids.size()) {
    PW_ASSIGN_OR_RETURN(const std::string here,
                        pjrt::ForDevices(options, info.num_replicas, info.num_partitions, local));
    return CompileFor(args, module, format, here);
  }
  if (local.size() != 1 || info.num_replicas != 1) {
    return Unimplemented("expected a computation with one partition on each node, got " + std::to_string(local.size()) +
                         " here");
  }
  Gang gang;
  for (const int64_t id : ids) {
    gang.topic += std::to_string(id) + ",";
    gang.nodes.insert(NodeOf(id));
  }
  {
    std::lock_guard lock(pod.mutex);
    gang.topic += " compile " + std::to_string(pod.compiles[gang.topic]++);
  }
  const size_t mine = std::hash<std::string_view>()(module) ^ std::hash<std::string_view>()(options);
  PW_ASSIGN_OR_RETURN(const auto theirs, Exchange(gang.topic, gang.nodes, std::to_string(mine)));
  for (const std::string& other : theirs) {
    if (other != std::to_string(mine)) return Internal("expected every node to compile the same, one does not");
  }
  const pjrt::Partitioner partitioner(pod.base_api, "");
  PW_ASSIGN_OR_RETURN(const pjrt::ShardProgram program,
                      partitioner.Partition(module, format, options, info.num_partitions));
  if (!program.collectives.empty()) return Unimplemented("this plugin has no " + program.collectives.front());
  PW_ASSIGN_OR_RETURN(const std::string one, pjrt::ForOneShard(options));
  PW_ASSIGN_OR_RETURN(const std::string here, pjrt::ForDevices(one, 1, 1, local));
  PW_ASSIGN_OR_RETURN(const std::string part, hlo::FixPartition(program.module, static_cast<uint32_t>(shard)));
  PW_RETURN_IF_ERROR(CompileFor(args, part, "hlo", here));
  std::lock_guard lock(pod.mutex);
  pod.not_begun[args->executable] = std::move(gang);
  return OkStatus();
}

PJRT_Error* ClientCompile(PJRT_Client_Compile_Args* args) { return ToError(Compile(args)); }

// The first run sets up what a real plugin's communicators need, on the thread that enqueues it.
PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  Pod& pod = ThePod();
  Gang gang;
  {
    std::lock_guard lock(pod.mutex);
    auto first = pod.not_begun.extract(args->executable);
    if (!first.empty()) gang = std::move(first.mapped());
  }
  if (!gang.nodes.empty()) {
    const auto all = Exchange("run of " + gang.topic, gang.nodes, std::to_string(args->options->launch_id));
    if (!all.ok()) return ToError(all.status());
    for (const std::string& other : *all) {
      if (other == all->front()) continue;
      return ToError(Internal("expected one launch id on every node, got " + all->front() + " and " + other));
    }
  }
  return pod.base->PJRT_LoadedExecutable_Execute(args);
}

const PJRT_Api* Load() {
  Pod& pod = ThePod();
  const char* path = std::getenv("PW_TEST_PJRT_PLUGIN");
  if (path == nullptr) return nullptr;
  auto base = pjrt::Api::Load(path);
  if (!base.ok()) return nullptr;
  pod.base_api = *base;
  pod.base = (*base)->table();
  std::memcpy(&pod.table, pod.base, std::min(pod.base->struct_size, sizeof(PJRT_Api)));
  pod.table.struct_size = std::min(pod.base->struct_size, sizeof(PJRT_Api));
  pod.table.PJRT_Error_Destroy = &ErrorDestroy;
  pod.table.PJRT_Error_Message = &ErrorMessage;
  pod.table.PJRT_Error_GetCode = &ErrorGetCode;
  pod.table.PJRT_Client_Create = &ClientCreate;
  pod.table.PJRT_Client_PlatformName = &ClientPlatformName;
  pod.table.PJRT_DeviceDescription_Id = &DeviceDescriptionId;
  pod.table.PJRT_Client_Compile = &ClientCompile;
  pod.table.PJRT_LoadedExecutable_Execute = &Execute;
  return &pod.table;
}

}  // namespace
}  // namespace pathways::testing

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const table = pathways::testing::Load();
  return table;
}
