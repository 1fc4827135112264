#include "csrc/worker/compiler.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "csrc/base/mappings.h"
#include "csrc/hlo/collective_check.h"
#include "csrc/hlo/edit.h"
#include "csrc/hlo/serve_collectives.h"
#include "csrc/hlo/use_kernels.h"
#include "csrc/hlo/xla_mistakes.h"
#include "csrc/kernels/onednn_api.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/module_dump.h"
#include "csrc/worker/note.h"

namespace pathways::worker {
namespace {

// Partitioning costs a compile without optimisations. It pays for computations so small that a launch weighs, and those
// have small modules.
constexpr size_t kSmallModuleBytes = 16 << 10;
// Shards that differ by their number are compiled one by one.
constexpr size_t kMaxDifferentShards = 8;
// A step of a large model takes thousands of mappings; none left would end the process.
constexpr uint32_t kLeastRoomPercent = 15;

}  // namespace

Compiler::Compiler(std::shared_ptr<pjrt::Client> client, std::string scratch, std::optional<DiskCache> disk,
                   std::optional<std::string> kernels, uint64_t max_mappings)
    : client_(client),
      scratch_(scratch),
      max_mappings_(max_mappings),
      cache_(std::move(client), std::move(scratch), std::move(disk)),
      kernels_(std::move(kernels)),
      thread_([this] { Loop(); }) {}

Compiler::~Compiler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void Compiler::Submit(Job job, Done done) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(job), std::move(done)});
  }
  changed_.notify_one();
}

void Compiler::Loop() {
  pthread_setname_np(pthread_self(), "pw-compile");
  for (;;) {
    Item item;
    {
      UniqueLock lock(mutex_);
      changed_.wait(lock, [this]() PW_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome;
    Status prepared = CheckRoom();
    if (prepared.ok()) prepared = Prepare(&item.job);
    Result<Computation> computation = prepared.ok() ? Compile(item.job) : Result<Computation>(prepared);
    outcome.status = computation.status();
    if (computation.ok() && item.job.want_sharding) {
      Result<std::string> sharding = computation->OutputSharding();
      outcome.status = sharding.status();
      if (sharding.ok()) outcome.output_sharding = *std::move(sharding);
    }
    if (outcome.status.ok()) outcome.computation = std::make_shared<const Computation>(*std::move(computation));
    outcome.code_room = MappingsNow(max_mappings_).free_percent();
    outcome.compile_us = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
    item.done(std::move(outcome));
  }
}

Status Compiler::CheckRoom() const {
  const Mappings mappings = MappingsNow(max_mappings_);
  if (mappings.free_percent() >= kLeastRoomPercent) return OkStatus();
  return FailedPrecondition(
      "a host needs memory mappings for compiled code, several for each kernel of a computation, got " +
      std::to_string(mappings.used) + " in use of the " + std::to_string(mappings.most) +
      " that one process may have; let go of functions and programs that are not needed, use fewer shapes (pad "
      "batches), "
      "start more hosts, or raise vm.max_map_count");
}

Status Compiler::Prepare(Job* job) {
  const int64_t replicas = job->one_device ? 1 : job->replicas, partitions = job->one_device ? 1 : job->partitions;
  std::optional<std::string> hlo;
  if (job->format == "mlir") {
    PW_RETURN_IF_ERROR(hlo::CheckMlirCounts(job->module, replicas, partitions));
    if (!hlo::MlirMayMeetDevices(job->module)) return OkStatus();
    PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneDevice(job->options));
    PW_ASSIGN_OR_RETURN(
        hlo, pjrt::CompileAndDump(client_.get(), job->module, job->format, options, pjrt::Stage::kRead, scratch_));
    if (!hlo) return OkStatus();  // a plugin that does not say what it reads
  }
  const std::string& module = hlo ? *hlo : job->module;
  PW_RETURN_IF_ERROR(hlo::CheckCollectives(module, replicas, partitions));
  const bool several_here = replicas * partitions > 1 && client_->platform_name() == "cpu";
  PW_ASSIGN_OR_RETURN(std::string edited, hlo::AvoidXlaMistakes(module, {partitions > 1, several_here}));
  if (partitions > 1) {
    PW_ASSIGN_OR_RETURN(edited, hlo::SplitAllReduces(edited));
  }
  if (edited == module) return OkStatus();
  job->module = std::move(edited);
  job->format = "hlo";
  return OkStatus();
}

Result<Computation> Compiler::Compile(const Job& job) {
  if (job.one_device) {
    PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneDevice(job.options));
    PW_ASSIGN_OR_RETURN(auto executable, CompileUnpartitioned(job.module, job.format, options));
    return Computation::Portable(std::move(executable));
  }
  const int64_t shards = job.replicas * job.partitions;
  if (static_cast<int64_t>(job.shards.size()) < shards) return CompileSpanning(job);
  if (shards > 1 && job.replicas == 1 && job.module.size() <= kSmallModuleBytes && client_->platform_name() == "cpu") {
    const auto program = cache_.Partition(job.module, job.format, job.options, job.partitions);
    const bool separate = program.ok() && (*program)->collectives.empty() &&
                          (!(*program)->differs || job.shards.size() <= kMaxDifferentShards);
    if (separate) return CompileShards(job, **program);
  }
  return CompileGang(job);
}

Result<Computation> Compiler::CompileGang(const Job& job) {
  std::vector<int64_t> ids(job.shards.size());
  std::vector<int> devices;
  for (const Shard& shard : job.shards) {
    ids[shard.number] = client_->devices()[static_cast<size_t>(shard.device)].id;
    devices.push_back(shard.device);
  }
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForDevices(job.options, job.replicas, job.partitions, ids));
  PW_ASSIGN_OR_RETURN(auto executable, job.partitions == 1 ? CompileUnpartitioned(job.module, job.format, options)
                                                           : cache_.Compile(job.module, job.format, options));
  return Computation::Gang(std::move(executable), devices);
}

// oneDNN's threads for a call: those that OpenMP would use, shared out among the devices, which compute at the same
// time.
int64_t Compiler::ThreadsPerDevice() const {
  const int64_t threads = kernels::Onednn()->default_threads;
  return std::max<int64_t>(1, threads / static_cast<int64_t>(std::max<size_t>(1, client_->devices().size())));
}

Result<std::shared_ptr<const pjrt::Executable>> Compiler::CompileUnpartitioned(const std::string& module,
                                                                               const std::string& format,
                                                                               const std::string& options) {
  const auto has = [&module](std::string_view opcode) { return module.find(opcode) != std::string::npos; };
  if (!kernels_ || format != "hlo" || (!has("convolution") && !has("dot"))) {
    return cache_.Compile(module, format, options);
  }
  const Status loaded =
      kernels_->empty() ? NotFound("the package onednn-cpu-gomp is not installed") : kernels::LoadOnednn(*kernels_);
  if (!loaded.ok()) {
    kernels_.reset();
    Note("convolutions and products of matrices on the CPU are XLA's own, which are slower: " +
         std::string(loaded.message()));
    return cache_.Compile(module, format, options);
  }
  PW_ASSIGN_OR_RETURN(const bool counts, hlo::CountsOtherWork(module));
  if (!counts) return cache_.Compile(module, format, options);
  PW_ASSIGN_OR_RETURN(const hlo::ModuleWithKernels edited, hlo::UseKernels(module, ThreadsPerDevice()));
  return cache_.Compile(edited.module, format, options);
}

Result<Computation> Compiler::CompileShards(const Job& job, const pjrt::ShardProgram& program) {
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneShard(job.options));
  std::vector<Computation::Executable> executables;
  std::vector<int> devices;
  for (const Shard& shard : job.shards) {
    devices.push_back(shard.device);
    if (!executables.empty() && !program.differs) continue;
    PW_ASSIGN_OR_RETURN(const std::string module, hlo::FixPartition(program.module, shard.number));
    PW_ASSIGN_OR_RETURN(auto executable, CompileUnpartitioned(module, "hlo", options));
    executables.push_back(std::move(executable));
  }
  return Computation::Shards(std::move(executables), std::move(devices), program.info.output_sharding);
}

// Every host compiles the same module for the devices of all, and runs its part.
Result<Computation> Compiler::CompileTogether(const Job& job) {
  std::vector<int> devices;
  for (const Shard& shard : job.shards) devices.push_back(shard.device);
  PW_ASSIGN_OR_RETURN(const std::string options,
                      pjrt::ForDevices(job.options, job.replicas, job.partitions, job.plugin_ids));
  // Past the caches: compilers of one client may share out work such as autotuning, and would wait for a host that
  // takes the result from its disk.
  PW_ASSIGN_OR_RETURN(auto executable, client_->Compile(job.module, job.format, options));
  return Computation::Gang(std::move(executable), devices);
}

Result<Computation> Compiler::CompileSpanning(const Job& job) {
  if (!job.plugin_ids.empty()) return CompileTogether(job);
  const std::string& platform = client_->platform_name();
  if (platform != "cpu" || job.replicas != 1) {
    return Unimplemented("a computation over several hosts must be partitioned, on cpu devices; got " +
                         std::to_string(job.replicas) + " replicas x " + std::to_string(job.partitions) +
                         " partitions on " + platform + "; use a slice within one host");
  }
  PW_ASSIGN_OR_RETURN(const auto program, cache_.Partition(job.module, job.format, job.options, job.partitions));
  if (program->collectives.empty()) return CompileShards(job, *program);
  PW_ASSIGN_OR_RETURN(const hlo::ServedModule served,
                      hlo::ServeCollectives(program->module, static_cast<uint32_t>(job.partitions)));
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneShard(job.options));
  std::vector<Computation::Executable> executables;
  std::vector<int> devices;
  for (const Shard& shard : job.shards) {
    devices.push_back(shard.device);
    if (!executables.empty() && !served.differs_inside) continue;
    std::string module = served.module;
    if (served.differs_inside) {
      PW_ASSIGN_OR_RETURN(module, hlo::FixPartition(served.module, shard.number));
    }
    PW_ASSIGN_OR_RETURN(auto executable, CompileUnpartitioned(module, "hlo", options));
    executables.push_back(std::move(executable));
  }
  return Computation::Spanning(std::move(executables), std::move(devices), program->info.output_sharding);
}

}  // namespace pathways::worker
