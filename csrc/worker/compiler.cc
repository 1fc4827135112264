#include "csrc/worker/compiler.h"

#include <pthread.h>

#include <chrono>

#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/hlo_edit.h"
#include "csrc/pjrt/serve_collectives.h"

namespace pathways::worker {
namespace {

// Partitioning costs a compile without optimisations. It pays for computations so small that a launch weighs, and those
// have small modules.
constexpr size_t kSmallModuleBytes = 16 << 10;
// Shards that differ by their number are compiled one by one.
constexpr size_t kMaxDifferentShards = 8;

}  // namespace

Compiler::Compiler(std::shared_ptr<pjrt::Client> client, std::string scratch, std::optional<DiskCache> disk)
    : client_(client), cache_(std::move(client), std::move(scratch), std::move(disk)), thread_([this] { Loop(); }) {}

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
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome;
    Result<Computation> computation = Compile(item.job);
    outcome.status = computation.status();
    if (computation.ok() && item.job.want_sharding) {
      Result<std::string> sharding = computation->OutputSharding();
      outcome.status = sharding.status();
      if (sharding.ok()) outcome.output_sharding = *std::move(sharding);
    }
    if (outcome.status.ok()) outcome.computation = std::make_shared<const Computation>(*std::move(computation));
    outcome.compile_us = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
    item.done(std::move(outcome));
  }
}

Result<Computation> Compiler::Compile(const Job& job) {
  if (job.one_device) {
    PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneDevice(job.options));
    PW_ASSIGN_OR_RETURN(auto executable, cache_.Compile(job.module, job.format, options));
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
  PW_ASSIGN_OR_RETURN(auto executable, cache_.Compile(job.module, job.format, options));
  return Computation::Gang(std::move(executable), devices);
}

Result<Computation> Compiler::CompileShards(const Job& job, const pjrt::ShardProgram& program) {
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneShard(job.options));
  std::vector<Computation::Executable> executables;
  std::vector<int> devices;
  for (const Shard& shard : job.shards) {
    devices.push_back(shard.device);
    if (!executables.empty() && !program.differs) continue;
    PW_ASSIGN_OR_RETURN(const std::string module, pjrt::FixPartition(program.module, shard.number));
    PW_ASSIGN_OR_RETURN(auto executable, cache_.Compile(module, "hlo", options));
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
  PW_ASSIGN_OR_RETURN(const pjrt::ServedModule served,
                      pjrt::ServeCollectives(program->module, static_cast<uint32_t>(job.partitions)));
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneShard(job.options));
  std::vector<Computation::Executable> executables;
  std::vector<int> devices;
  for (const Shard& shard : job.shards) {
    devices.push_back(shard.device);
    if (!executables.empty() && !served.differs_inside) continue;
    std::string module = served.module;
    if (served.differs_inside) {
      PW_ASSIGN_OR_RETURN(module, pjrt::FixPartition(served.module, shard.number));
    }
    PW_ASSIGN_OR_RETURN(auto executable, cache_.Compile(module, "hlo", options));
    executables.push_back(std::move(executable));
  }
  return Computation::Spanning(std::move(executables), std::move(devices), program->info.output_sharding);
}

}  // namespace pathways::worker
