// Functions compiled by the CPU plugin for slices of one host and of a part of one, and what they compute.
#include "csrc/worker/compiler.h"

#include <stdlib.h>

#include <filesystem>
#include <future>

#include "csrc/hlo/edit.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/kernels/test_support.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/custom_calls.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::worker {
namespace {

using hlo::F32;
using hlo::HloBuilder;
using hlo::ShardingBytes;
using hlo::SplitSharding;
using pjrt::Client;
using pjrt::Fetch;
using pjrt::SharedClient;

const ShardingBytes kReplicated = std::string();

// x + y of two elements a shard, as a module for `parts` partitions.
std::string Added(int64_t parts, const ShardingBytes& first, const ShardingBytes& result) {
  HloBuilder builder;
  const std::string shape = F32({2 * parts});
  const int64_t x = builder.Parameter(shape), y = builder.Parameter(shape);
  builder.Add("add", shape, {x, y});
  auto module = hlo::AnnotateShardings(builder.Build("added"), {{first, SplitSharding(parts)}}, {{result}});
  EXPECT_OK(module.status());
  return module.ok() ? *module : "";
}

Compiler::Job JobOf(std::string module, int64_t partitions, std::vector<Compiler::Shard> shards) {
  Compiler::Job job;
  job.module = std::move(module);
  job.format = "hlo";
  job.partitions = partitions;
  job.shards = std::move(shards);
  return job;
}

Result<std::shared_ptr<const Computation>> CompileOne(Compiler& compiler, Compiler::Job job) {
  auto promise = std::make_shared<std::promise<Compiler::Outcome>>();
  auto future = promise->get_future();
  compiler.Submit(std::move(job), [promise](Compiler::Outcome outcome) { promise->set_value(std::move(outcome)); });
  if (future.wait_for(pjrt::kTimeout) != std::future_status::ready) return DeadlineExceeded("the compile never ended");
  Compiler::Outcome outcome = future.get();
  PW_RETURN_IF_ERROR(outcome.status);
  return outcome.computation;
}

// Row i: the arguments of shard i, on devices[i]. Gives the first result of each shard.
Result<std::vector<std::vector<float>>> Launch(const Computation& computation, const std::vector<int>& devices,
                                               const std::vector<std::vector<std::vector<float>>>& rows) {
  std::vector<std::vector<pjrt::Buffer>> held(rows.size());
  std::vector<std::vector<pjrt::Buffer*>> pointers(rows.size());
  std::vector<std::span<pjrt::Buffer* const>> spans;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const auto& values : rows[row]) {
      PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, pjrt::Put(SharedClient(), values, devices[row]));
      held[row].push_back(std::move(buffer));
    }
    for (pjrt::Buffer& buffer : held[row]) pointers[row].push_back(&buffer);
    spans.emplace_back(pointers[row]);
  }
  pjrt::ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(computation.Launch(spans, devices[0], {}, {1}, {}, &outputs));
  std::vector<std::vector<float>> results(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    PW_RETURN_IF_ERROR(outputs.done[row].Await());
    EXPECT_EQ(outputs.buffers[row][0].device(), devices[row]);
    PW_ASSIGN_OR_RETURN(results[row], Fetch(outputs.buffers[row][0]));
  }
  return results;
}

TEST(WithoutCollectivesShardsRunOneByOne) {
  NEED_PLUGIN(client);
  Compiler compiler(client->shared_from_this(), "");
  const std::string module = Added(2, SplitSharding(2), SplitSharding(2));
  ASSERT_OK_AND_ASSIGN(const auto computation, CompileOne(compiler, JobOf(module, 2, {{0, 3}, {1, 1}})));
  EXPECT(!computation->is_gang());
  EXPECT_EQ(computation->OutputTypes()[0].ToString(), "f32[2]");
  ASSERT_OK_AND_ASSIGN(const auto results, Launch(*computation, {3, 1}, {{{0, 1}, {10, 10}}, {{2, 3}, {20, 20}}}));
  EXPECT(results == (std::vector<std::vector<float>>{{10, 11}, {22, 23}}));
}

TEST(WithCollectivesTheyAreAGang) {
  NEED_PLUGIN(client);
  Compiler compiler(client->shared_from_this(), "");
  const std::string module = Added(4, SplitSharding(4), kReplicated);
  // In an order that is not the plugin's.
  ASSERT_OK_AND_ASSIGN(const auto computation,
                       CompileOne(compiler, JobOf(module, 4, {{0, 2}, {1, 0}, {2, 3}, {3, 1}})));
  EXPECT(computation->is_gang());
  std::vector<std::vector<std::vector<float>>> rows;
  for (int shard = 0; shard < 4; ++shard) rows.push_back({{0, 1}, {static_cast<float>(shard), 0}});
  ASSERT_OK_AND_ASSIGN(const auto results, Launch(*computation, {2, 0, 3, 1}, rows));
  EXPECT(results == std::vector<std::vector<float>>(4, {0, 1, 1, 1, 2, 1, 3, 1}));
}

TEST(APartOfASliceKnowsItsNumbers) {
  NEED_PLUGIN(client);
  Compiler compiler(client->shared_from_this(), "");
  // The first argument is whole on every device, so each shard takes the part of its number.
  const std::string module = Added(8, kReplicated, SplitSharding(8));
  ASSERT_OK_AND_ASSIGN(const auto computation, CompileOne(compiler, JobOf(module, 8, {{6, 0}, {7, 1}})));
  std::vector<float> whole;
  for (int i = 0; i < 16; ++i) whole.push_back(static_cast<float>(i));
  ASSERT_OK_AND_ASSIGN(const auto results, Launch(*computation, {0, 1}, {{whole, {100, 100}}, {whole, {200, 200}}}));
  EXPECT(results == (std::vector<std::vector<float>>{{112, 113}, {214, 215}}));
  EXPECT(computation->Launch({}, 0, {}, {1}, {}, nullptr).code() == Code::kInvalidArgument);
}

TEST(ShardsThatMeetThoseOfOtherHostsNeedTickets) {
  NEED_PLUGIN(client);
  ASSERT_OK(pjrt::RegisterCustomCalls(*client->api(), "cpu"));
  Compiler compiler(client->shared_from_this(), "");
  ASSERT_OK_AND_ASSIGN(const auto computation,
                       CompileOne(compiler, JobOf(Added(8, SplitSharding(8), kReplicated), 8, {{0, 0}, {1, 1}})));
  EXPECT(computation->is_spanning());
  EXPECT(computation->devices() == (std::vector<int>{0, 1}));
  EXPECT_EQ(computation->OutputTypes()[0].ToString(), "f32[16]");
  const std::vector<std::span<pjrt::Buffer* const>> rows(2);
  pjrt::ExecuteOutputs outputs;
  EXPECT_HAS(computation->Launch(rows, 0, {}, {1}, {}, &outputs).ToString(), "a ticket for each");
  Compiler::Job replicas = JobOf(Added(2, SplitSharding(2), SplitSharding(2)), 1, {{0, 0}});
  replicas.replicas = 2;
  EXPECT_HAS(CompileOne(compiler, std::move(replicas)).status().ToString(), "2 replicas");
}

// A convolution in two groups: images (1, 2, 4, 4), windows (2, 1, 3, 3), padded by 1.
// With an addition behind it, unless it is to be `alone`.
std::string Convolved(bool alone) {
  HloBuilder builder;
  const int64_t image = builder.Parameter(F32({1, 2, 64, 64})), window = builder.Parameter(F32({2, 1, 3, 3}));
  ProtoWriter dimensions, windows, fields;
  for (const auto& [field, value] :
       {std::pair(7, 0), {8, 1}, {11, 2}, {11, 3}, {4, 0}, {3, 1}, {6, 2}, {6, 3}, {9, 0}, {10, 1}, {12, 2}, {12, 3}}) {
    dimensions.Int64(static_cast<uint32_t>(field), value);
  }
  for (int i = 0; i < 2; ++i) {
    ProtoWriter one;
    for (const auto& [field, value] : {std::pair(1, 3), {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}) {
      one.Int64(static_cast<uint32_t>(field), value);
    }
    windows.Bytes(1, one.bytes());
  }
  fields.Bytes(15, windows.bytes());
  fields.Bytes(16, dimensions.bytes());
  fields.Int64(50, 2);
  const int64_t made = builder.Add("convolution", F32({1, 2, 64, 64}), {image, window}, fields.bytes());
  if (!alone) builder.Add("add", F32({1, 2, 64, 64}), {made, image});
  return builder.Build("convolved");
}

// Whether oneDNN's call is in what was compiled for a device, once with `kernels` for a library.
Result<bool> CallsKernels(Client* client, std::optional<std::string> kernels, bool alone = false) {
  Compiler compiler(client->shared_from_this(), "", {}, std::move(kernels));
  Compiler::Job job;
  job.module = Convolved(alone);
  job.format = "hlo";
  job.one_device = true;
  PW_ASSIGN_OR_RETURN(const auto computation, CompileOne(compiler, std::move(job)));
  PW_ASSIGN_OR_RETURN(const auto program, computation->representative().GetOptimizedProgram());
  return program.code.find("pathways.kernel") != std::string::npos;
}

TEST(ConvolutionsAreOnednnsWhereItIs) {
  NEED_PLUGIN(client);
  ASSERT_OK(pjrt::RegisterCustomCalls(*client->api(), "cpu"));
  ASSERT_OK_AND_ASSIGN(const bool unwanted, CallsKernels(client, std::nullopt));
  EXPECT(!unwanted);
  ASSERT_OK_AND_ASSIGN(const bool missing, CallsKernels(client, ""));
  EXPECT(!missing);
  if (kernels::OnednnPath().empty()) return testing::Skip("set PW_ONEDNN to the path of oneDNN's library");
  ASSERT_OK_AND_ASSIGN(const bool there, CallsKernels(client, kernels::OnednnPath()));
  EXPECT(there);
  // XLA would run it on the thread that submits it.
  ASSERT_OK_AND_ASSIGN(const bool alone, CallsKernels(client, kernels::OnednnPath(), true));
  EXPECT(!alone);
}

TEST(EqualContentIsCompiledOnce) {
  NEED_PLUGIN(client);
  CompileCache cache(client->shared_from_this(), "");
  const std::string module = Added(1, kReplicated, kReplicated);
  ASSERT_OK_AND_ASSIGN(const std::string options, pjrt::ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(auto first, cache.Compile(module, "hlo", options));
  ASSERT_OK_AND_ASSIGN(auto second, cache.Compile(module, "hlo", options));
  EXPECT(first == second);
  EXPECT_EQ(cache.compiles(), 1);
  first.reset();
  second.reset();  // nobody holds it: it is gone, and compiled anew
  ASSERT_OK_AND_ASSIGN(const auto third, cache.Compile(module, "hlo", options));
  EXPECT_EQ(cache.compiles(), 2);
  const std::string split = Added(4, SplitSharding(4), SplitSharding(4));
  ASSERT_OK_AND_ASSIGN(const auto once, cache.Partition(split, "hlo", "", 4));
  ASSERT_OK_AND_ASSIGN(const auto again, cache.Partition(split, "hlo", "", 4));
  EXPECT(once == again);
  EXPECT(!cache.Compile("not a module", "hlo", options).ok());
}

TEST(AStoredExecutableIsNotCompiledAgain) {
  NEED_PLUGIN(client);
  char folder[] = "/tmp/pw-test-XXXXXX";
  ASSERT(mkdtemp(folder) != nullptr);
  ASSERT_OK_AND_ASSIGN(const DiskCache disk, DiskCache::Open(folder, "maker"));
  const std::string split = Added(4, SplitSharding(4), kReplicated);
  const std::vector<int64_t> ids = {0, 1, 2, 3};
  ASSERT_OK_AND_ASSIGN(const std::string one, pjrt::ForOneDevice(""));
  ASSERT_OK_AND_ASSIGN(const std::string four, pjrt::ForDevices("", 1, 4, ids));
  const std::string whole = Added(1, kReplicated, kReplicated);
  for (const auto& [module, options] : {std::pair(whole, one), std::pair(split, four)}) {
    // As the cache writes its keys: 0 partitions, format, size of the options, options, module.
    const std::string key = "0 hlo " + std::to_string(options.size()) + ' ' + options + module;
    ASSERT_OK_AND_ASSIGN(const auto compiled, client->Compile(module, "hlo", options));
    ASSERT_OK_AND_ASSIGN(const std::string bytes, compiled->Serialize());
    ASSERT_OK(disk.Store(key, bytes));
    CompileCache cache(client->shared_from_this(), "", disk);
    ASSERT_OK_AND_ASSIGN(const auto executable, cache.Compile(module, "hlo", options));
    EXPECT_EQ(cache.compiles(), 0);
    EXPECT(executable->devices() == compiled->devices());
    EXPECT_EQ(executable->num_outputs(), compiled->num_outputs());
    const auto memory = executable->MemoryStats(), fresh = compiled->MemoryStats();
    ASSERT(memory.has_value() && fresh.has_value());
    EXPECT(memory->temporary == fresh->temporary && memory->outputs == fresh->outputs);
    ASSERT_OK(disk.Store(key, "no executable"));
    CompileCache anew(client->shared_from_this(), "", disk);
    EXPECT_OK(anew.Compile(module, "hlo", options));
    EXPECT_EQ(anew.compiles(), 1);
  }
  std::filesystem::remove_all(folder);
}

TEST(OneDeviceRunsAnywhere) {
  NEED_PLUGIN(client);
  Compiler compiler(client->shared_from_this(), "");
  Compiler::Job job = JobOf(Added(1, kReplicated, kReplicated), 1, {});
  job.one_device = true;
  ASSERT_OK_AND_ASSIGN(const auto computation, CompileOne(compiler, std::move(job)));
  for (int device = 0; device < 4; ++device) {
    ASSERT_OK_AND_ASSIGN(const auto results, Launch(*computation, {device}, {{{1, 2}, {3, 4}}}));
    EXPECT(results[0] == (std::vector<float>{4, 6}));
  }
}

}  // namespace
}  // namespace pathways::worker
