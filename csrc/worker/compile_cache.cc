#include "csrc/worker/compile_cache.h"

#include <algorithm>
#include <chrono>

#include "csrc/worker/note.h"

namespace pathways::worker {
namespace {

constexpr size_t kKeptPartitioned = 8;
// What compiles faster is hardly read faster.
constexpr auto kWorthKeeping = std::chrono::milliseconds(20);

std::string ContentKey(std::string_view module, std::string_view format, const std::string& options,
                       int64_t partitions) {
  std::string key = std::to_string(partitions) + ' ' + std::string(format) + ' ' + std::to_string(options.size()) + ' ';
  key.reserve(key.size() + options.size() + module.size());
  return key.append(options).append(module);
}

void TellLost(const Status& why) {
  if (why.code() != Code::kDataLoss) return;
  Note("a compiled program in the cache cannot be used and is compiled again: " + std::string(why.message()));
}

void TellNotKept(const Status& why) {
  Note("compiled programs are not kept for the next start: " + std::string(why.message()));
}

}  // namespace

CompileCache::CompileCache(std::shared_ptr<pjrt::Client> client, std::string scratch, std::optional<DiskCache> disk)
    : client_(std::move(client)), partitioner_(client_->api(), std::move(scratch)), disk_(std::move(disk)) {}

Result<std::shared_ptr<const pjrt::Executable>> CompileCache::Compile(std::string_view module, std::string_view format,
                                                                      const std::string& options) {
  std::string key = ContentKey(module, format, options, 0);
  if (const auto found = executables_.find(key); found != executables_.end()) {
    if (auto executable = found->second.lock()) return executable;
  }
  PW_ASSIGN_OR_RETURN(std::unique_ptr<pjrt::Executable> compiled, LoadOrCompile(key, module, format, options));
  std::shared_ptr<const pjrt::Executable> executable = std::move(compiled);
  std::erase_if(executables_, [](const auto& entry) { return entry.second.expired(); });
  executables_.insert_or_assign(std::move(key), executable);
  return executable;
}

Result<std::unique_ptr<pjrt::Executable>> CompileCache::LoadOrCompile(const std::string& key, std::string_view module,
                                                                      std::string_view format,
                                                                      const std::string& options) {
  std::optional<DiskCache::Turn> turn;
  if (disk_) {
    turn.emplace(disk_->TakeTurn(key));
    const auto stored = disk_->Load(key);
    Status lost = stored.status();
    if (stored.ok()) {
      auto executable = client_->Deserialize(*stored);
      if (executable.ok()) return executable;
      lost = DataLoss("the plugin cannot load it: " + std::string(executable.status().message()));
    }
    TellLost(lost);  // it is stored anew
  }
  const auto start = std::chrono::steady_clock::now();
  PW_ASSIGN_OR_RETURN(auto executable, client_->Compile(module, format, options));
  ++compiles_;
  if (disk_ && std::chrono::steady_clock::now() - start >= kWorthKeeping) {
    const auto bytes = executable->Serialize();
    const Status stored = bytes.ok() ? disk_->Store(key, *bytes) : bytes.status();
    if (!stored.ok()) TellNotKept(stored);
  }
  return executable;
}

Result<pjrt::ShardProgram> CompileCache::LoadOrPartition(const std::string& key, std::string_view module,
                                                         std::string_view format, const std::string& options,
                                                         int64_t partitions) {
  if (!disk_) return partitioner_.Partition(module, format, options, partitions);
  const DiskCache::Turn turn = disk_->TakeTurn(key);
  const auto stored = disk_->Load(key);
  if (stored.ok()) {
    if (auto program = pjrt::DescribeShardProgram(*stored); program.ok()) return program;
  }
  TellLost(stored.status());
  PW_ASSIGN_OR_RETURN(pjrt::ShardProgram program, partitioner_.Partition(module, format, options, partitions));
  if (const Status kept = disk_->Store(key, program.module); !kept.ok()) TellNotKept(kept);
  return program;
}

Result<std::shared_ptr<const pjrt::ShardProgram>> CompileCache::Partition(std::string_view module,
                                                                          std::string_view format,
                                                                          const std::string& options,
                                                                          int64_t partitions) {
  std::string key = ContentKey(module, format, options, partitions);
  const auto found = std::find_if(partitioned_.begin(), partitioned_.end(),
                                  [&key](const Partitioned& entry) { return entry.first == key; });
  if (found != partitioned_.end()) {
    partitioned_.splice(partitioned_.begin(), partitioned_, found);
    return found->second;
  }
  PW_ASSIGN_OR_RETURN(pjrt::ShardProgram program, LoadOrPartition(key, module, format, options, partitions));
  auto shared = std::make_shared<const pjrt::ShardProgram>(std::move(program));
  partitioned_.emplace_front(std::move(key), shared);
  if (partitioned_.size() > kKeptPartitioned) partitioned_.pop_back();
  return shared;
}

}  // namespace pathways::worker
