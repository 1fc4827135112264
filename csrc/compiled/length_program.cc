#include "csrc/compiled/length_program.h"

#include <algorithm>
#include <functional>

#include "csrc/base/log.h"
#include "csrc/compiled/hash.h"
#include "csrc/compiled/length_proof.h"
#include "csrc/compiled/program.h"
#include "csrc/values/client.h"
#include "csrc/values/transfer.h"
#include "csrc/values/upload.h"

namespace pathways::compiled {
namespace {

constexpr size_t kResizing = 64;  // functions that are kept

std::string MlirType(const TensorType& type) {
  std::string text = "tensor<";
  for (const int64_t dim : type.dims) text += std::to_string(dim) + "x";
  const std::string_view name = DTypeName(type.dtype);
  if (type.dtype == DType::kPred) {
    text += "i1";
  } else if (type.dtype == DType::kC64) {
    text += "complex<f32>";
  } else if (type.dtype == DType::kC128) {
    text += "complex<f64>";
  } else if (name[0] == 's') {
    text += "i" + std::string(name.substr(1));
  } else if (name[0] == 'u') {
    text += "ui" + std::string(name.substr(1));
  } else {
    text += name;
  }
  return text + ">";
}

std::string Listed(size_t rank, const auto& of) {
  std::string text;
  for (size_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(of(i));
  return text;
}

// A module that makes an array of type `to` of one of type `from`, which begins like it.
std::string ResizingModule(const TensorType& from, const TensorType& to) {
  const size_t rank = from.dims.size();
  const bool pads = std::ranges::equal(from.dims, to.dims, std::less_equal<>());
  std::string text =
      "module @resize {\n  func.func public @main(%x: " + MlirType(from) + ") -> " + MlirType(to) + " {\n";
  if (pads) {
    const std::string scalar = MlirType({from.dtype, {}});
    const std::string zero = from.dtype == DType::kPred                                           ? "false"
                             : from.dtype == DType::kC64 || from.dtype == DType::kC128            ? "(0.0, 0.0)"
                             : DTypeName(from.dtype)[0] == 's' || DTypeName(from.dtype)[0] == 'u' ? "0"
                                                                                                  : "0.0";
    text += "    %zero = stablehlo.constant dense<" + zero + "> : " + scalar + "\n";
    text += "    %0 = stablehlo.pad %x, %zero, low = [" + Listed(rank, [](size_t) { return 0; }) + "], high = [" +
            Listed(rank, [&](size_t i) { return to.dims[i] - from.dims[i]; }) + "], interior = [" +
            Listed(rank, [](size_t) { return 0; }) + "] : (" + MlirType(from) + ", " + scalar + ") -> " + MlirType(to) +
            "\n";
  } else {
    text += "    %0 = stablehlo.slice %x [";
    for (size_t i = 0; i < rank; ++i) text += (i == 0 ? "0:" : ", 0:") + std::to_string(to.dims[i]);
    text += "] : (" + MlirType(from) + ") -> " + MlirType(to) + "\n";
  }
  return text + "    return %0 : " + MlirType(to) + "\n  }\n}\n";
}

// `type`: the tensor's, as its user knows it.
Status CheckUsable(const client::Shard& shard, const TensorType& type,
                   const std::shared_ptr<client::Session>& session) {
  if (shard.buffer->session() != session) {
    return FailedPrecondition("a tensor " + type.ToString() + " belongs to cluster '" +
                              shard.buffer->session()->cluster() +
                              "', which this process has left; make it anew in the cluster of now");
  }
  return shard.buffer->CheckHeld();
}

}  // namespace

bool LengthProgram::CanResize(const hlo::LengthModule& module) {
  const auto can_resize = [](const std::vector<TensorType>& types,
                             const std::vector<std::vector<hlo::GrowingDimension>>& growing) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (!growing[i].empty() && (types[i].dtype < DType::kPred || types[i].dtype > DType::kC128)) return false;
    }
    return true;
  };
  return can_resize(module.parameters, module.growing_parameters) && can_resize(module.results, module.growing_results);
}

Result<std::shared_ptr<client::Function>> LengthProgram::Registered(const Program& user) {
  const std::shared_ptr<client::Session> session = user.client()->session();
  CodeRoom& code = user.compiler->code();
  code.NoteUse(*this);
  std::string options;
  {
    std::lock_guard lock(mutex_);
    if (registered_ != nullptr && registered_->session() == session) return registered_;
    if (options_.empty()) options_ = user.spec.options;
    options = options_;
  }
  client::FunctionSpec spec = user.spec;
  spec.options = std::move(options);
  spec.module = module_.module;
  spec.outputs = module_.results;
  spec.outputs_known = true;
  PW_ASSIGN_OR_RETURN(
      std::shared_ptr<client::Function> function,
      code.RegisterOnce(session, "length" + ContentHash(spec.module) + ContentHash(spec.options), spec, this));
  std::shared_ptr<client::Function> counted(function.get(), [function](client::Function*) {}), former;
  {
    std::lock_guard lock(mutex_);
    former = std::exchange(registered_, counted);  // dropped without the lock
  }
  HoldsCode(code);
  return counted;
}

void LengthProgram::HoldsCode(CodeRoom& code) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_listed_, true)) return;
  }
  code.Add(weak_from_this());
}

bool LengthProgram::GiveUpCode() const {
  std::shared_ptr<client::Function> registered;  // dropped without the lock
  std::map<std::string, std::shared_ptr<client::Function>> resizing;
  std::lock_guard lock(mutex_);
  if (being_proved_.load(std::memory_order_relaxed) || registered_.use_count() > 1) return false;
  registered.swap(registered_);
  resizing.swap(resizing_);
  is_listed_ = false;
  return true;
}

Result<client::Shard> LengthProgram::Resized(const Program& user, const client::Shard& shard, const TensorType& to) {
  const TensorType& from = shard.type();
  const std::shared_ptr<client::Session> session = user.client()->session();
  const std::string key = "resize " + from.ToString() + " " + to.ToString();
  CodeRoom& code = user.compiler->code();
  code.NoteUse(*this);
  std::shared_ptr<client::Function> function;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = resizing_.find(key); found != resizing_.end() && found->second->session() == session) {
      function = found->second;
    }
  }
  if (function == nullptr) {
    client::FunctionSpec spec;
    spec.name = key;
    spec.format = "mlir";
    spec.module = ResizingModule(from, to);
    spec.options = user.spec.options;
    spec.source = user.spec.source;
    spec.outputs = {to};
    spec.outputs_known = true;
    PW_ASSIGN_OR_RETURN(function, code.RegisterOnce(session, key, std::move(spec), this));
    std::map<std::string, std::shared_ptr<client::Function>> former;  // these are dropped without the lock
    std::shared_ptr<client::Function> of_former_cluster;
    {
      std::lock_guard lock(mutex_);
      if (resizing_.size() >= kResizing) former.swap(resizing_);
      of_former_cluster = std::exchange(resizing_[key], function);
    }
    HoldsCode(code);
  }
  const std::vector<uint32_t> on = {shard.buffer->devices()[shard.index]};
  const std::vector<std::vector<client::Shard>> arguments = {{shard}};
  PW_ASSIGN_OR_RETURN(const client::RunResult made,
                      session->runs().Run(function, {.devices = on, .arguments = arguments}));
  return client::Shard{made.outputs[0], 0};
}

Result<client::RunResult> LengthProgram::Run(const Program& user, const values::DeviceListPtr& on,
                                             std::span<const values::ValuePtr> arguments,
                                             std::span<const values::ValuePtr> scalars,
                                             std::span<const uint32_t> donated) {
  const std::shared_ptr<client::Session> session = user.client()->session();
  std::vector<std::vector<client::Shard>> shards(1);
  for (size_t i = 0; i < module_.parameters.size(); ++i) {
    const bool grows = !module_.growing_parameters[i].empty();
    const client::Shard* const padded = grows ? arguments[i]->padded() : nullptr;
    if (padded != nullptr && padded->type() == module_.parameters[i]) {
      PW_RETURN_IF_ERROR(CheckUsable(*padded, arguments[i]->type(), session));
      shards[0].push_back(*padded);
      continue;
    }
    PW_ASSIGN_OR_RETURN(client::Shard shard, arguments[i]->shard());
    PW_RETURN_IF_ERROR(CheckUsable(shard, shard.type(), session));
    if (grows) {
      PW_ASSIGN_OR_RETURN(shard, Resized(user, shard, module_.parameters[i]));
    }
    shards[0].push_back(std::move(shard));
  }
  for (const values::ValuePtr& scalar : scalars) {
    PW_ASSIGN_OR_RETURN(client::Shard shard, scalar->shard());
    shards[0].push_back(std::move(shard));
  }
  // A padded array may have other readers, and fits no result.
  std::vector<uint32_t> given_up;
  for (const uint32_t position : donated) {
    const bool whole = shards[0][position].buffer->devices().size() == 1;
    if (module_.growing_parameters[position].empty() && whole) given_up.push_back(position);
  }
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<client::Function> function, Registered(user));
  PW_ASSIGN_OR_RETURN(
      client::RunResult run,
      session->runs().Run(function, {.devices = {on->data(), 1}, .arguments = shards, .donated = given_up}));
  if (run.outputs.size() != module_.results.size()) {
    return Internal(user.What() + ": expected " + std::to_string(module_.results.size()) + " results, got " +
                    std::to_string(run.outputs.size()));
  }
  return run;
}

void LengthProgram::Resolve(const std::shared_ptr<const Program>& user, const client::RunResult& run,
                            std::span<const values::ValuePtr> results) {
  for (size_t k = 0; k < results.size(); ++k) {
    const client::Shard made{run.outputs[k], 0};
    if (module_.growing_results[k].empty() || module_.results[k] == results[k]->type()) {
      results[k]->Resolve(made);
      continue;
    }
    results[k]->ResolvePadded(
        made, [self = shared_from_this(), user, made, type = results[k]->array_type()]() -> Result<client::Shard> {
          PW_RETURN_IF_ERROR(CheckUsable(made, type->type, user->client()->session()));
          return self->Resized(*user, made, type->type);
        });
  }
}

bool LengthProgram::Serves(const Program& user, PJRT_Device* device, const values::DeviceListPtr& on,
                           std::span<const values::ValuePtr> arguments) {
  std::lock_guard lock(proof_);
  if (state_ == State::kRefuted || user.has_settled.load(std::memory_order_relaxed)) return false;
  if (state_ == State::kUnknown) {
    being_proved_ = true;
    const Status same = Prove(user, device, on, arguments);
    being_proved_ = false;
    state_ = same.ok() ? State::kProven : State::kRefuted;
    if (!same.ok()) {
      // That a run of the comparison failed is told here, and not as one of the program's.
      client::Runs& runs = user.client()->session()->runs();
      const Status noted = runs.TakeFailure();
      if (!noted.ok() && same.message().find(noted.message()) == std::string_view::npos) runs.NoteFailure(noted);
      logging::Warning("", user.What() +
                               " is compiled for each of its lengths, because one computation for all of them " +
                               (same.code() == Code::kResourceExhausted ? "needs more device memory than is free"
                                                                        : std::string(same.message())));
      return false;
    }
  }
  in_a_row_ = latest_ == &user ? in_a_row_ + 1 : 1;
  latest_ = &user;
  if (in_a_row_ > kInARow) user.has_settled = true;
  return in_a_row_ <= kInARow;
}

Status LengthProgram::Prove(const Program& user, PJRT_Device* device, const values::DeviceListPtr& on,
                            std::span<const values::ValuePtr> arguments) {
  const std::shared_ptr<const Program> first = first_.lock();
  if (first == nullptr || !first->parameters || first->parameters->size() != module_.parameters.size()) {
    return FailedPrecondition("has nothing to be compared with");
  }
  // Of fixed size: the caller's. Others: chosen by chance, with other contents behind them for the common computation.
  std::vector<values::ValuePtr> special, common;
  LengthProof proof;
  for (size_t i = 0; i < module_.parameters.size(); ++i) {
    if (module_.growing_parameters[i].empty()) {
      special.push_back(arguments[i]);
      common.push_back(arguments[i]);
      continue;
    }
    const TensorType& type = (*first->parameters)[i];
    const std::string contents = proof.Contents(type);
    const std::string behind = LengthProof::WithGarbage(type, contents, module_.parameters[i]);
    PW_ASSIGN_OR_RETURN(values::ValuePtr exact,
                        values::UploadValue(user.client(), device, type, contents.data(), nullptr));
    PW_ASSIGN_OR_RETURN(values::ValuePtr padded,
                        values::UploadValue(user.client(), device, module_.parameters[i], behind.data(), nullptr));
    special.push_back(std::move(exact));
    common.push_back(std::move(padded));
  }
  ScalarArguments length;
  length.Set(first_scalars_);
  PW_ASSIGN_OR_RETURN(const std::vector<values::ValuePtr> scalars, length.On(user.client(), device, on));
  PW_ASSIGN_OR_RETURN(const std::vector<values::ValuePtr> numbers, first->numbers.On(user.client(), device, on));
  special.insert(special.end(), numbers.begin(), numbers.end());
  common.insert(common.end(), scalars.begin(), scalars.end());
  const auto run = [&](Result<std::shared_ptr<client::Function>> function,
                       const std::vector<values::ValuePtr>& values) -> Result<std::vector<values::ValuePtr>> {
    PW_RETURN_IF_ERROR(function.status());
    std::vector<std::vector<client::Shard>> shards(1);
    for (const values::ValuePtr& value : values) {
      PW_ASSIGN_OR_RETURN(client::Shard shard, value->shard());
      shards[0].push_back(std::move(shard));
    }
    PW_ASSIGN_OR_RETURN(
        const client::RunResult made,
        user.client()->session()->runs().Run(*function, {.devices = {on->data(), 1}, .arguments = shards}));
    std::vector<values::ValuePtr> results;
    for (const auto& output : made.outputs) {
      results.push_back(std::make_shared<values::Value>(user.client(), device, client::Shard{output, 0}));
    }
    return results;
  };
  PW_ASSIGN_OR_RETURN(const std::vector<values::ValuePtr> expected, run(first->Registered(), special));
  Result<std::vector<values::ValuePtr>> got = run(Registered(user), common);
  if (!got.ok()) return got.status().WithPrefix("cannot be run");
  if (got->size() != expected.size()) return Internal("has another number of results");
  for (size_t k = 0; k < expected.size(); ++k) {
    std::string right(static_cast<size_t>(expected[k]->type().ByteSize()), '\0');
    std::string common_one(static_cast<size_t>((*got)[k]->type().ByteSize()), '\0');
    PW_RETURN_IF_ERROR(
        values::FetchValue(expected[k], right.data(), 0, right.size())->Wait().WithPrefix("cannot be compared"));
    PW_RETURN_IF_ERROR(
        values::FetchValue((*got)[k], common_one.data(), 0, common_one.size())->Wait().WithPrefix("cannot be run"));
    if (!LengthProof::Agree(expected[k]->type(), right, (*got)[k]->type(), common_one)) {
      return Internal("gives other values (result " + std::to_string(k) + ", " + expected[k]->type().ToString() + ")");
    }
  }
  return OkStatus();
}

}  // namespace pathways::compiled
