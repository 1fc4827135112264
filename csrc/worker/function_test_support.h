// What tests of functions and programs share: a host that compiles and runs one.
//
// Ownership: one for each test. Threads: as TestHost.
#ifndef PTPATHWAYS_WORKER_FUNCTION_TEST_SUPPORT_H_
#define PTPATHWAYS_WORKER_FUNCTION_TEST_SUPPORT_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/hlo/test_hlo.h"
#include "csrc/worker/runs.h"
#include "csrc/worker/test_support.h"

namespace pathways::worker {

inline constexpr uint64_t kFunction = (uint64_t{1} << wire::kClientShift) | 1;
inline const TensorType kPair{DType::kF32, {2}};

inline wire::Put PairOf(uint64_t id) {
  const float values[] = {1, 2};
  wire::Put put;
  put.buffer = put.key = id;
  put.device = 4;
  put.type = kPair;
  put.inline_data.assign(reinterpret_cast<const char*>(values), sizeof values);
  return put;
}

inline wire::Expect PairThatComes(uint64_t id) {
  wire::Expect expect;
  expect.buffer = id;
  expect.device = 4;
  expect.type = kPair;
  return expect;
}

// A function that makes twice its argument.
inline wire::Register DoubledRequest() {
  wire::Register request;
  request.function = kFunction;
  request.name = "doubled";
  request.format = "hlo";
  request.one_device = 1;
  return request;
}

inline std::string DoubledModule() {
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({2}));
  builder.Add("add", hlo::F32({2}), {x, x});
  return builder.Build("doubled");
}

inline wire::Run RunOf(uint64_t number, uint64_t argument, bool donated = false) {
  wire::Run run;
  run.run = run.first_output = number;
  run.function = kFunction;
  run.output_count = 1;
  run.devices = {4};
  run.arguments = {argument};
  if (donated) run.donated = {0};
  return run;
}

struct KeptContinuations : CompileListener {
  std::vector<std::pair<uint64_t, Status>> compiled;
  std::vector<wire::Query> answered;
  void Compiled(uint64_t program, const Status& status) override { compiled.emplace_back(program, status); }
  void Answer(const wire::Query& query) override { answered.push_back(query); }
};

struct HostOfFunctions : TestHostWithBuffers {
  KeptContinuations waiting;
  std::atomic<int> room{0};
  Completions completions{context, causes};
  Gangs gangs{context, cluster, causes, completions, *data};
  Functions functions{context, cluster, std::make_unique<Compiler>(context.client(), ""), false, waiting};
  Launcher launcher{context, gangs, [this] { ++room; }};
  Runs runs{context, cluster, functions, launcher, completions, gangs};

  using TestHostWithBuffers::TestHostWithBuffers;
  ~HostOfFunctions() {
    engine->Stop();
    functions.StopCompiling();
  }
  Status Register(size_t payloads = 2) {
    transport::Frames frames;
    frames.emplace_back("head");
    if (payloads > 0) frames.emplace_back(DoubledModule());
    if (payloads > 1) frames.emplace_back(*pjrt::ForOneDevice(""));
    return functions.Register(DoubledRequest(), frames);
  }
  wire::RunOutcome Outcome(size_t count) { return messages.Await<wire::Done>(count).back().outcomes.back(); }
  Status PutPair(uint64_t id) { return buffers.Put(PairOf(id)); }
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_FUNCTION_TEST_SUPPORT_H_
