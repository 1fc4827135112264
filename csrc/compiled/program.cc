#include "csrc/compiled/program.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/compiled/hash.h"
#include "csrc/hlo/lay_out.h"
#include "csrc/hlo/op_sharding.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/values/upload.h"

namespace pathways::compiled {
namespace {

// A worker answers once the program is compiled, which may take minutes.
constexpr std::chrono::milliseconds kCompileTimeout{1'800'000};

// The module itself in the form callers want: HloModuleProtoWithConfig of openxla/xla (1 hlo_module, 2 config), with a
// config (HloModuleConfigProto) of 1 entry_computation_layout, 4 replica_count, 5 num_partitions.
std::string WithConfig(std::string_view module, int64_t replicas, int64_t partitions) {
  ProtoWriter config;
  ProtoReader reader(module);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(4, WireType::kBytes)) config.Bytes(1, field.bytes);  // HloModuleProto.host_program_shape
  }
  config.Int64(4, replicas);
  config.Int64(5, partitions);
  ProtoWriter proto;
  proto.Bytes(1, module);
  proto.Bytes(2, config.bytes());
  return std::move(proto).Take();
}

std::string Signature(const Program& program) {
  std::string text;
  if (program.parameters) {
    for (const TensorType& type : *program.parameters) text += (text.empty() ? "(" : ", ") + type.ToString();
    text += text.empty() ? "()" : ")";
  }
  text += " ->";
  for (const values::ArrayTypePtr& type : program.results) text += " " + type->type.ToString();
  return text;
}

}  // namespace

std::string Program::What() const {
  return "function '" + spec.name + "'" + (spec.source.empty() ? "" : " (" + spec.source + ")");
}

Result<std::vector<values::ValuePtr>> ScalarArguments::On(const std::shared_ptr<values::ClientState>& client,
                                                          PJRT_Device* device, const values::DeviceListPtr& on) const {
  if (numbers_.empty()) return std::vector<values::ValuePtr>();
  const std::shared_ptr<client::Session> session = client->session();
  const auto fits = [&](const values::ValuePtr& value) {
    return value->device() == device && value->shard().ok() && value->shard()->buffer->session() == session &&
           (value->device_list() == on || value->devices() == *on);
  };
  {
    std::lock_guard lock(mutex_);
    if (!uploaded_.empty() && fits(uploaded_.front())) return uploaded_;
  }
  std::vector<values::ValuePtr> fresh;
  for (const hlo::ModuleNumber& number : numbers_) {
    const TensorType type{number.dtype, {}};
    PW_ASSIGN_OR_RETURN(values::ValuePtr value, values::UploadValue(client, device, type, &number.bits,
                                                                    values::UploadTiling(type, on->size())));
    fresh.push_back(std::move(value));
  }
  std::lock_guard lock(mutex_);
  uploaded_ = fresh;
  return fresh;
}

Result<client::QueryAnswer> Program::AskOfCompiled(wire::QueryKind kind) const {
  const std::shared_ptr<client::Session> session = client()->session();
  {
    UniqueLock lock(mutex);
    if (!for_slices.empty() && for_slices.front()->function->session() == session) {
      const std::shared_ptr<const SliceProgram> sliced = for_slices.front();
      lock.unlock();
      return session->queries().Ask(kind, sliced->function, sliced->devices->front(), kCompileTimeout);
    }
    if (registered == nullptr || registered->session() != session) {
      return FailedPrecondition(What() + " has not run in this cluster");
    }
  }
  return Ask(kind);
}

Result<client::QueryAnswer> Program::Ask(wire::QueryKind kind) const {
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr bound,
                      (devices.empty() ? client()->devices().all()[0] : devices[0])->Bound());
  const uint32_t device = bound->front();
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<client::Function> registered, Registered());
  return registered->session()->queries().Ask(kind, registered, device, kCompileTimeout);
}

Result<const client::QueryAnswer*> Program::Optimized() const {
  {
    std::lock_guard lock(mutex);
    if (optimized) return &*optimized;
  }
  client::QueryAnswer answer;
  if (spec.format == "hlo" && partitions == 1) {
    answer.format = "hlo_with_config";
    answer.payload = WithConfig(CallersModule(), replicas, partitions);
  } else {
    PW_ASSIGN_OR_RETURN(answer, Ask(wire::QueryKind::kOptimizedProgram));
    if (answer.format == "hlo") {
      answer.payload = WithConfig(answer.payload, replicas, partitions);
      answer.format = "hlo_with_config";
    }
  }
  std::lock_guard lock(mutex);
  if (!optimized) optimized = std::move(answer);
  return &*optimized;
}

Result<std::shared_ptr<client::Function>> Program::Registered() const {
  const std::shared_ptr<client::Session> session = client()->session();
  compiler->code().NoteUse(*this);
  std::lock_guard lock(mutex);
  if (registered == nullptr || registered->session() != session) {
    client::FunctionSpec plain = spec;
    if (plain.format == "hlo") {
      PW_ASSIGN_OR_RETURN(plain.module, hlo::WithoutLayouts(spec.module));
    }
    PW_ASSIGN_OR_RETURN(registered, compiler->code().RegisterOnce(session, key, std::move(plain), this));
    HoldsCode();
  }
  return registered;
}

void Program::HoldsCode() const {
  if (!std::exchange(is_listed, true)) compiler->code().Add(weak_from_this());
}

bool Program::GiveUpCode() const {
  if (!mutex.try_lock()) return false;
  std::lock_guard lock(mutex, std::adopt_lock);
  is_listed = false;
  registered.reset();
  for_slices.clear();
  return true;
}

Result<std::shared_ptr<const SliceProgram>> Program::ForSlice(const values::DeviceListPtr& on,
                                                              std::span<const values::ValuePtr> arguments) const {
  const std::shared_ptr<client::Session> session = client()->session();
  const auto fits = [&](const std::shared_ptr<const SliceProgram>& known) {
    return (known->devices == on || *known->devices == *on) && known->function->session() == session &&
           std::equal(arguments.begin(), arguments.end(), known->arguments.begin(), known->arguments.end(),
                      [](const auto& value, const TilingPtr& tiling) { return value->tiling() == tiling; });
  };
  compiler->code().NoteUse(*this);
  std::lock_guard lock(mutex);
  const auto found = std::find_if(for_slices.begin(), for_slices.end(), fits);
  if (found != for_slices.end()) {
    const std::optional<Status> outcome = (*found)->function->compiled()->TryGet();
    if (!outcome || outcome->ok()) {
      std::rotate(for_slices.begin(), found, found + 1);
      return for_slices.front();
    }
    for_slices.erase(found);  // it is tried again: the cause may have gone
  }
  auto made = std::make_shared<SliceProgram>();
  made->devices = on;
  for (const auto& value : arguments) made->arguments.push_back(value->tiling());
  client::FunctionSpec sliced = spec;
  PW_ASSIGN_OR_RETURN(hlo::LaidOut laid_out, hlo::LayOut(spec.module, made->arguments, on->size()));
  sliced.module = std::move(laid_out.module);
  PW_ASSIGN_OR_RETURN(sliced.options, pjrt::WithFreeResults(options, laid_out.free));
  sliced.one_device = false;
  sliced.partitions = static_cast<uint32_t>(on->size());
  sliced.devices = *on;
  sliced.outputs.clear();
  sliced.outputs_known = false;
  sliced.wants_sharding = true;
  std::string slice_key = "slice" + ContentHash(sliced.module) + ContentHash(sliced.options);
  for (const uint32_t device : *on) slice_key += "," + std::to_string(device);
  PW_ASSIGN_OR_RETURN(made->function, compiler->code().RegisterOnce(session, slice_key, std::move(sliced), this));
  std::vector<size_t> ranks;
  for (const values::ArrayTypePtr& result : results) ranks.push_back(result->type.dims.size());
  PW_ASSIGN_OR_RETURN(std::vector<Tiling> tilings,
                      hlo::DecodeOpShardings(made->function->spec().output_sharding, ranks, on->size()));
  const std::vector<TensorType>& shards = made->function->spec().outputs;
  for (size_t k = 0; k < tilings.size(); ++k) {
    if (k >= shards.size() || tilings[k].ShardType(results[k]->type) != shards[k]) {
      return Internal(What() + ": result " + std::to_string(k) + " should be " + results[k]->type.ToString() +
                      " laid out as " + tilings[k].ToString() + " over " + std::to_string(on->size()) + " devices" +
                      (k < shards.size() ? ", got shards " + shards[k].ToString() : ", got none"));
    }
    made->results.push_back(Intern(std::move(tilings[k])));
  }
  for_slices.insert(for_slices.begin(), made);
  HoldsCode();
  return std::shared_ptr<const SliceProgram>(std::move(made));
}

void Program::Describe() {
  for (size_t i = 0; i < devices.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    logical_ids.push_back({static_cast<int>(at / partitions), static_cast<int>(at % partitions)});
  }
  for (const values::ArrayTypePtr& result : results) {
    const TensorType& type = result->type;
    result_types.push_back(static_cast<PJRT_Buffer_Type>(type.dtype));
    result_dims.insert(result_dims.end(), type.dims.begin(), type.dims.end());
    result_ranks.push_back(type.dims.size());
  }
  result_memory_kinds.assign(results.size(), values::kMemoryKind);
  result_memory_kind_sizes.assign(results.size(), sizeof(values::kMemoryKind) - 1);
  parameter_memory_kinds.assign(parameters ? parameters->size() : 0, values::kMemoryKind);
  parameter_memory_kind_sizes.assign(parameter_memory_kinds.size(), sizeof(values::kMemoryKind) - 1);
  signature = Signature(*this);
}

}  // namespace pathways::compiled
