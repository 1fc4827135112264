// CompileCache: compiles each content once while somebody holds what came of it, however many functions have it.
// With a folder on disk, processes that share it compile and partition each content once among them, too.
//
// Ownership: borrows the plugin's client. Executables belong to those who asked; the cache only knows them. The last
// few partitioned modules are kept, since the functions of a program often come one after another with the same
// content. Threads:   one thread, the compiler's.
#ifndef PTPATHWAYS_WORKER_COMPILE_CACHE_H_
#define PTPATHWAYS_WORKER_COMPILE_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/pjrt/client.h"
#include "csrc/pjrt/partition.h"
#include "csrc/worker/disk_cache.h"

namespace pathways::worker {

class CompileCache {
 public:
  // `scratch`: folder for short-lived files; empty: the system's. `disk`: where executables outlive the process.
  CompileCache(std::shared_ptr<pjrt::Client> client, std::string scratch, std::optional<DiskCache> disk = {});

  // As pjrt::Client::Compile.
  Result<std::shared_ptr<const pjrt::Executable>> Compile(std::string_view module, std::string_view format,
                                                          const std::string& options);
  // As pjrt::Partitioner::Partition.
  Result<std::shared_ptr<const pjrt::ShardProgram>> Partition(std::string_view module, std::string_view format,
                                                              const std::string& options, int64_t partitions);

  // Compiles that were not answered from the cache.
  uint64_t compiles() const { return compiles_; }

 private:
  Result<std::unique_ptr<pjrt::Executable>> LoadOrCompile(const std::string& key, std::string_view module,
                                                          std::string_view format, const std::string& options);
  Result<pjrt::ShardProgram> LoadOrPartition(const std::string& key, std::string_view module, std::string_view format,
                                             const std::string& options, int64_t partitions);
  using Partitioned = std::pair<std::string, std::shared_ptr<const pjrt::ShardProgram>>;

  const std::shared_ptr<pjrt::Client> client_;
  const pjrt::Partitioner partitioner_;
  const std::optional<DiskCache> disk_;
  // By the whole content: modules of different clients may meet here, and a hash could be forged.
  std::unordered_map<std::string, std::weak_ptr<const pjrt::Executable>> executables_;
  std::list<Partitioned> partitioned_;  // latest first
  uint64_t compiles_ = 0;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_COMPILE_CACHE_H_
