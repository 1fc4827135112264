#include "csrc/compiled/compiler.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/compiled/hash.h"
#include "csrc/compiled/installed.h"
#include "csrc/compiled/program.h"
#include "csrc/hlo/collective_check.h"
#include "csrc/hlo/hlo.h"
#include "csrc/hlo/lay_out.h"
#include "csrc/pjrt/compile_options.h"

namespace pathways::compiled {
namespace {

// Whether modules that differ in numbers only share a computation (families.h).
bool NumbersAreArguments() {
  static const bool on = [] {
    const char* const text = std::getenv("PTPATHWAYS_NUMBER_ARGUMENTS");
    return text == nullptr || std::string_view(text) != "off";
  }();
  return on;
}

// Of one kind of number that a worker says of a compiled program; 0 where it does not say it.
double PropertyOf(const client::QueryAnswer& answer, std::string_view name) {
  for (const wire::Property& property : answer.properties) {
    if (property.name == name) return property.kind == 1 ? static_cast<double>(property.integer) : property.real;
  }
  return 0;
}

// How many times the one costs the other, in operations or in memory beyond small change: the larger of the two, as far
// as the plugin of the workers says them.
double CostRatio(const Program& one, const Program& other) {
  double ratio = 0;
  for (const auto& [kind, name, small] : {std::tuple(wire::QueryKind::kCostAnalysis, "flops", 1e4),
                                          std::tuple(wire::QueryKind::kCompiledMemory, "temporary", 1e6)}) {
    const Result<client::QueryAnswer> first = one.AskOfCompiled(kind), second = other.AskOfCompiled(kind);
    if (!first.ok() || !second.ok()) continue;
    ratio = std::max(ratio, (PropertyOf(*first, name) + small) / (PropertyOf(*second, name) + small));
  }
  return ratio;
}

// As ModuleFamilies::Choose, which has the costs compared the first time that a common computation is met again: both
// are compiled by then, so that asking takes a moment.
Result<Chosen> Choose(ModuleFamilies& families, std::string_view module) {
  constexpr double kBearable = 1.25;
  PW_ASSIGN_OR_RETURN(Chosen chosen, families.Choose(module));
  if (chosen.common == nullptr || chosen.special == nullptr) return chosen;
  const double ratio = CostRatio(*chosen.common, *chosen.special);
  const bool worse = ratio > kBearable;
  families.Compared(chosen, worse);
  if (!worse) return chosen;
  char times[32];
  std::snprintf(times, sizeof times, "%.1f", ratio);
  logging::Warning("", chosen.special->What() +
                           " is compiled for each of its numbers, because one computation for all of " + "them costs " +
                           times + " times as much");
  return families.Choose(module);
}

// What has to be known of a module before it is compiled.
struct Facts {
  std::string name;
  std::string source;
  std::optional<std::vector<TensorType>> parameters;  // known for HLO
  std::optional<std::vector<TensorType>> results;
  bool meets_other_devices = false;
  bool may_donate = false;
  std::vector<uint32_t> donatable;
  std::vector<int64_t> passed;
};

std::vector<uint32_t> Donatable(const hlo::HloModuleInfo& info) {
  std::set<uint32_t> positions;
  for (int64_t position : info.aliased_parameters) positions.insert(static_cast<uint32_t>(position));
  for (int64_t position : info.donated_parameters) positions.insert(static_cast<uint32_t>(position));
  return {positions.begin(), positions.end()};
}

Result<Facts> FactsOfHlo(std::string_view module) {
  PW_ASSIGN_OR_RETURN(hlo::HloModuleInfo info, hlo::ReadHloModule(module));
  Facts facts;
  facts.name = info.name;
  facts.source = info.source_location;
  facts.donatable = Donatable(info);
  PW_ASSIGN_OR_RETURN(facts.passed, hlo::PassedParameters(module));
  facts.parameters = std::move(info.parameters);
  facts.results = std::move(info.results);
  facts.meets_other_devices = info.has_cross_device_instructions;
  return facts;
}

// MLIR comes as text or bytecode; both spell out the names of operations and attributes, so that is what can be told
// without a parser. A name met by chance costs a gang or a question to the worker, never a wrong result.
Facts FactsOfMlir(std::string_view module) {
  static constexpr std::array<std::string_view, 2> kDonors = {"tf.aliasing_output", "jax.buffer_donor"};
  Facts facts;
  facts.meets_other_devices = hlo::MlirMayMeetDevices(module);
  facts.may_donate = std::any_of(kDonors.begin(), kDonors.end(), [module](std::string_view name) {
    return module.find(name) != std::string_view::npos;
  });
  facts.name = "mlir";
  constexpr std::string_view kTextStart = "module @";
  if (const size_t at = module.find(kTextStart); at != std::string_view::npos) {
    const std::string_view rest = module.substr(at + kTextStart.size());
    facts.name = std::string(rest.substr(0, rest.find_first_of(" \n{")));
  } else if (const size_t jit = module.find("jit_"); jit != std::string_view::npos) {  // JAX's symbol, in bytecode
    const std::string_view rest = module.substr(jit);
    facts.name = std::string(
        rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")));
  }
  return facts;
}

// The devices that the options name, replica-major; empty for a portable program that names none.
Result<std::vector<PJRT_Device*>> DevicesOf(const values::ClientState& client, const pjrt::CompileOptionsInfo& info) {
  const int64_t wanted = info.num_replicas * info.num_partitions;
  const int64_t have = static_cast<int64_t>(client.devices().all().size());
  if (info.num_replicas < 1 || info.num_partitions < 1 || wanted > have) {
    return InvalidArgument("expected replicas x partitions between 1 and the " + std::to_string(have) +
                           " devices, got " + std::to_string(info.num_replicas) + " x " +
                           std::to_string(info.num_partitions));
  }
  std::vector<PJRT_Device*> devices;
  if (!info.device_assignment) {
    if (info.compile_portable_executable) return devices;
    for (int64_t id = 0; id < wanted; ++id) devices.push_back(client.devices().Find(id));
    return devices;
  }
  const pjrt::DeviceAssignment& assignment = *info.device_assignment;
  if (assignment.replicas != info.num_replicas || assignment.partitions != info.num_partitions) {
    return InvalidArgument("expected a device assignment of " + std::to_string(info.num_replicas) + " x " +
                           std::to_string(info.num_partitions) + ", got " + std::to_string(assignment.replicas) +
                           " x " + std::to_string(assignment.partitions));
  }
  std::set<int64_t> seen;
  for (int64_t id : assignment.device_ids) {
    PJRT_Device* const device = client.devices().Find(id);
    if (device == nullptr || !seen.insert(id).second) {
      return InvalidArgument("the device assignment names device " + std::to_string(id) +
                             (device == nullptr ? ", which does not exist" : " twice"));
    }
    devices.push_back(device);
  }
  return devices;
}

// Its collectives reach no further.
Status CheckCollectivesReach(const std::string& name, const std::vector<PJRT_Device*>& devices) {
  for (const PJRT_Device* device : devices) {
    if (device->reach == devices[0]->reach) continue;
    return Unimplemented("computation '" + name + "' runs on " + devices[0]->description.debug_string + " and " +
                         device->description.debug_string +
                         " at once, which needs them in one island. Start the hosts in one island, run it on devices "
                         "of one (client option devices), or cut it into stages");
  }
  return OkStatus();
}

}  // namespace

Result<std::shared_ptr<Program>> Compiler::Compile(std::string_view code, std::string_view format,
                                                   std::string_view options) {
  PW_ASSIGN_OR_RETURN(const pjrt::CompileOptionsInfo info, pjrt::ReadCompileOptions(options));
  Facts facts;
  std::string_view module = code;
  if (format == "hlo" || format == "hlo_with_config") {
    PW_ASSIGN_OR_RETURN(module, hlo::HloModuleOfProgram(format, code));
    format = "hlo";
    PW_ASSIGN_OR_RETURN(facts, FactsOfHlo(module));
  } else if (format == "mlir") {
    facts = FactsOfMlir(module);
  } else {
    return Unimplemented("expected a program in format hlo, hlo_with_config or mlir, got '" + std::string(format) +
                         "'");
  }

  auto program = std::make_shared<Program>();
  program->compiler = shared_from_this();
  program->options = std::string(options);
  if (client_->is_logical()) {
    // The caller names each of its devices as a replica, and means the one it then executes on.
    if (!facts.results)
      return Unimplemented("logical devices take programs in the format hlo, got " + std::string(format));
  } else {
    program->replicas = info.num_replicas;
    program->partitions = info.num_partitions;
    PW_ASSIGN_OR_RETURN(program->devices, DevicesOf(*client_, info));
  }
  // Callers compile for all devices as replicas and then execute device by device. Unless replicas meet, such a program
  // is one for one device, which runs on any.
  program->gang = program->partitions > 1 || (program->replicas > 1 && facts.meets_other_devices);

  client::FunctionSpec& spec = program->spec;
  spec.name = facts.name;
  spec.format = std::string(format);
  spec.module = std::string(module);
  std::optional<Chosen> chosen;
  if (client_->is_logical() && !program->gang && NumbersAreArguments()) {
    PW_ASSIGN_OR_RETURN(chosen, Choose(families_, module));
    program->is_new = chosen->is_new;
    if (!chosen->numbers.empty()) {
      program->numbers.Set(chosen->numbers);
      program->callers_module = std::exchange(spec.module, chosen->module);
    }
  }
  LengthFamilies::Choice length;
  if (chosen && format == "hlo") {
    length = lengths_.Choose(module);
    if (length.lengthened) {
      program->lengthened = length.lengthened->program;
      program->length.Set(length.lengthened->scalars);
      program->is_new = program->is_new && length.is_new;
    }
  }
  spec.source = CurrentSource();
  if (spec.source.empty()) spec.source = facts.source;
  spec.one_device = !program->gang;
  std::string key = spec.format + ContentHash(spec.module);
  if (program->gang) {
    PW_RETURN_IF_ERROR(CheckCollectivesReach(facts.name, program->devices));
    spec.replicas = static_cast<uint32_t>(program->replicas);
    spec.partitions = static_cast<uint32_t>(program->partitions);
    spec.options = std::string(options);
    for (const PJRT_Device* device : program->devices) {
      spec.devices.push_back(device->devices()->front());
      key += "," + std::to_string(spec.devices.back());
    }
  } else {
    PW_ASSIGN_OR_RETURN(spec.options, pjrt::ForOneDevice(options));
  }
  key += ContentHash(spec.options);
  program->fingerprint = ContentHash(program->numbers.empty() ? key : key + ContentHash(module));
  // Partitioning changes the types of results; all else leaves them as the module says.
  if (facts.results && program->partitions == 1) {
    spec.outputs = *facts.results;
    spec.outputs_known = true;
  }
  program->key = key;
  if (!client_->is_logical()) {  // else it is registered where it first executes: there may be a slice
    PW_ASSIGN_OR_RETURN(std::shared_ptr<client::Function> registered,
                        code_.RegisterOnce(client_->session(), key, spec, program.get()));
    spec.outputs = registered->spec().outputs;
    std::lock_guard lock(program->mutex);
    program->registered = std::move(registered);
  }
  for (const TensorType& type : spec.outputs)
    program->results.push_back(std::make_shared<const values::ArrayType>(type));
  program->parameters = std::move(facts.parameters);
  program->donatable = std::move(facts.donatable);
  program->passed = std::move(facts.passed);
  if (facts.may_donate) {
    PW_ASSIGN_OR_RETURN(const client::QueryAnswer* optimized, program->Optimized());
    PW_ASSIGN_OR_RETURN(const std::string_view bytes, hlo::HloModuleOfProgram(optimized->format, optimized->payload));
    PW_ASSIGN_OR_RETURN(const hlo::HloModuleInfo compiled, hlo::ReadHloModule(bytes));
    program->donatable = Donatable(compiled);
  }
  program->Describe();
  if (chosen) families_.Made(*chosen, program);
  if (length.begins != 0) lengths_.Made(length.begins, program);
  {
    std::lock_guard lock(program->mutex);
    if (program->registered != nullptr) program->HoldsCode();
  }
  return program;
}

}  // namespace pathways::compiled
