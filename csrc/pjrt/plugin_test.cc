// The room against a real plugin (test_support.h).
#include <atomic>
#include <cstring>
#include <future>
#include <numeric>

#include "csrc/hlo/hlo.h"
#include "csrc/pjrt/client.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"
#include "csrc/testing/test.h"

namespace pathways::pjrt {
namespace {

const TensorType kVector{DType::kF32, {4}};

constexpr std::string_view kAddOne = R"(module @add_one {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.add %x, %one : tensor<4xf32>
    return %y : tensor<4xf32>
  }
})";

constexpr std::string_view kAddOneDonating = R"(module @add_one_donating {
  func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %y = stablehlo.add %x, %one : tensor<4xf32>
    return %y : tensor<4xf32>
  }
})";

Result<std::unique_ptr<Executable>> CompileForOne(Client* client, std::string_view code) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  return client->Compile(code, "mlir", options);
}

// One row of arguments on one device of a portable executable.
Status RunOn(const Executable& executable, std::vector<Buffer*> arguments, int device, ExecuteOutputs* outputs) {
  const std::span<Buffer* const> row(arguments);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = device;
  return executable.Execute(args, outputs);
}

TEST(LoadSaysWhatIsWrong) {
  EXPECT(Api::Load("/nonexistent/plugin.so").status().code() == Code::kNotFound);
  EXPECT_HAS(Api::Load("/nonexistent/plugin.so").status().ToString(), "/nonexistent/plugin.so");
  EXPECT(Api::Load("/etc/passwd").status().code() == Code::kInvalidArgument);
  const auto libc = Api::Load("libc.so.6");
  EXPECT_HAS(libc.status().ToString(), "GetPjrtApi");
  PJRT_Api other{};
  other.struct_size = sizeof(other);
  other.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
  EXPECT_HAS(Api::Wrap(&other, "other").status().ToString(), "major version");
}

TEST(OldPluginLacksFunctions) {
  static PJRT_Api table{};
  table.struct_size = offsetof(PJRT_Api, PJRT_Client_Create);
  ASSERT_OK_AND_ASSIGN(const auto api, Api::Wrap(&table, "an old plugin"));
  PJRT_Client_Create_Args args{};
  const Status status = api->Call<&PJRT_Api::PJRT_Client_Create>(&args);
  EXPECT(status.code() == Code::kUnimplemented);
  EXPECT_HAS(status.ToString(), "PJRT_Client_Create");
  EXPECT_HAS(status.ToString(), "an old plugin");
}

TEST(DevicesAreDescribed) {
  NEED_PLUGIN(client);
  ASSERT(!client->devices().empty());
  const bool of_ours = std::getenv(kOptionsVariable) == nullptr;
  if (of_ours) {
    EXPECT_EQ(client->platform_name(), "cpu");
    EXPECT_EQ(client->devices().size(), size_t{4});
    EXPECT(client->api()->FindExtension(PJRT_Extension_Type_FFI) != nullptr);
  }
  for (int i = 0; i < static_cast<int>(client->devices().size()); ++i) {
    EXPECT(!of_ours || client->devices()[static_cast<size_t>(i)].kind == "cpu");
    EXPECT_EQ(client->IndexOfDeviceId(client->devices()[static_cast<size_t>(i)].id), i);
  }
  EXPECT_EQ(client->IndexOfDeviceId(999), -1);
  ASSERT_OK_AND_ASSIGN(const auto again, Api::Load(testing::PluginPath()));
  EXPECT(again.get() == client->api().get());
}

TEST(CompileAndRunOnEveryDevice) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  EXPECT_EQ(executable->name(), "add_one");
  ASSERT_EQ(executable->num_outputs(), size_t{1});
  EXPECT_EQ(*executable->output_types()[0], kVector);
  EXPECT(executable->devices().empty());
  ExecuteOutputs outputs;
  for (int device = 0; device < static_cast<int>(client->devices().size()); ++device) {
    ASSERT_OK_AND_ASSIGN(Buffer x, Put(client, {0, 1, 2, static_cast<float>(device)}, device));
    ASSERT_OK(RunOn(*executable, {&x}, device, &outputs));
    EXPECT_EQ(outputs.buffers[0][0].device(), device);
    EXPECT_OK(outputs.done[0].Await());
    ASSERT_OK_AND_ASSIGN(const auto y, Fetch(outputs.buffers[0][0]));
    EXPECT(y == (std::vector<float>{1, 2, 3, static_cast<float>(device + 1)}));
  }
}

TEST(ExecutableDescribesItself) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  ASSERT_OK_AND_ASSIGN(const auto program, executable->GetOptimizedProgram());
  ASSERT_OK_AND_ASSIGN(const auto module_bytes, hlo::HloModuleOfProgram(program.format, program.code));
  ASSERT_OK_AND_ASSIGN(const auto module, hlo::ReadHloModule(module_bytes));
  EXPECT_EQ(module.parameters.size(), size_t{1});
  EXPECT_EQ(module.parameters[0], kVector);
  EXPECT_EQ(module.results[0], kVector);
  EXPECT(!module.has_cross_device_instructions);
  const auto cost = executable->CostAnalysis();  // CPU plugins up to C API 0.115 have none
  EXPECT(cost.ok() ? cost->count("flops") == 1 : cost.status().code() == Code::kUnimplemented);
  EXPECT_OK(executable->Fingerprint());
  EXPECT(!client->GetMemoryStats(0).has_value() || client->GetMemoryStats(0)->bytes_in_use >= 0);
  EXPECT(!client->GetMemoryStats(99).has_value());
  const auto memory = executable->MemoryStats();
  ASSERT(memory.has_value());
  EXPECT_EQ(memory->arguments, 16);
  EXPECT_EQ(memory->outputs, 16);
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  EXPECT_OK(client->Compile(module_bytes, "hlo", options));
  ASSERT_OK_AND_ASSIGN(const auto bytes, executable->Serialize());
  ASSERT_OK_AND_ASSIGN(const auto copy, client->Deserialize(bytes));
  const int last = static_cast<int>(client->devices().size()) - 1;
  ASSERT_OK_AND_ASSIGN(Buffer x, Put(client, {1, 2, 3, 4}, last));
  ExecuteOutputs outputs;
  ASSERT_OK(RunOn(*copy, {&x}, last, &outputs));
  ASSERT_OK_AND_ASSIGN(const auto y, Fetch(outputs.buffers[0][0]));
  EXPECT(y == (std::vector<float>{2, 3, 4, 5}));
}

TEST(ExecuteRunsBeforeItsInputExists) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer(kVector, 1));
  ASSERT_OK_AND_ASSIGN(Buffer x, async->TakeBuffer());
  EXPECT(async->TakeBuffer().status().code() == Code::kFailedPrecondition);
  ExecuteOutputs first, second;
  ASSERT_OK(RunOn(*executable, {&x}, 1, &first));
  ASSERT_OK(RunOn(*executable, {&first.buffers[0][0]}, 1, &second));
  EXPECT(!second.done[0].IsReady());
  ASSERT_OK_AND_ASSIGN(const EventHandle ready, second.buffers[0][0].ReadyEvent());
  Waiter waiter, low, high;
  ready.OnReady(waiter.Callback());
  const float values[4] = {10, 20, 30, 40};
  async->Transfer(values + 2, 8, 8, false, high.Callback());
  EXPECT_OK(high.Wait());
  EXPECT(!second.done[0].IsReady());
  async->Transfer(values, 8, 0, true, low.Callback());
  EXPECT_OK(low.Wait());
  EXPECT_OK(waiter.Wait());
  ASSERT_OK_AND_ASSIGN(const auto y, Fetch(second.buffers[0][0]));
  EXPECT(y == (std::vector<float>{12, 22, 32, 42}));
  Waiter late;
  async->Transfer(values, 8, 0, true, late.Callback());
  EXPECT(late.Wait().code() == Code::kFailedPrecondition);
}

TEST(SetErrorPoisonsDependents) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer(kVector, 0));
  ASSERT_OK_AND_ASSIGN(Buffer x, async->TakeBuffer());
  ExecuteOutputs first, second;
  ASSERT_OK(RunOn(*executable, {&x}, 0, &first));
  ASSERT_OK(RunOn(*executable, {&first.buffers[0][0]}, 0, &second));
  EXPECT_OK(async->SetError(Unavailable("host 3 was lost at train.py:42")));
  EXPECT_HAS(second.done[0].Await().ToString(), "host 3 was lost at train.py:42");
  EXPECT_HAS(Fetch(second.buffers[0][0]).status().ToString(), "host 3 was lost at train.py:42");
  // The buffer itself keeps our code; plugins report a dependent's failure as INTERNAL around our message.
  EXPECT(Fetch(x).status().code() == Code::kUnavailable);
  EXPECT(async->SetError(Internal("again")).code() == Code::kFailedPrecondition);
}

TEST(DroppedTransferPoisons) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(auto async, client->CreateAsyncBuffer(kVector, 0));
  ASSERT_OK_AND_ASSIGN(const Buffer x, async->TakeBuffer());
  async.reset();
  EXPECT_HAS(Fetch(x).status().ToString(), "given up");
}

TEST(TransfersAreChecked) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer(kVector, 0));
  const float values[5] = {};
  Waiter beyond, far;
  async->Transfer(values, 20, 0, true, beyond.Callback());
  EXPECT(beyond.Wait().code() == Code::kInvalidArgument);
  async->Transfer(values, 4, SIZE_MAX, true, far.Callback());
  EXPECT(far.Wait().code() == Code::kInvalidArgument);
  EXPECT(client->CreateAsyncBuffer(kVector, 4).status().code() == Code::kInvalidArgument);
  EXPECT(client->CreateAsyncBuffer({DType::kInvalid, {4}}, 0).status().code() == Code::kInvalidArgument);
}

TEST(EmptyAndScalarArrays) {
  NEED_PLUGIN(client);
  const TensorType empty{DType::kF32, {0, 3}};
  ASSERT_OK_AND_ASSIGN(const Buffer none, client->BufferFromHost(nullptr, empty, 0));
  ASSERT_OK_AND_ASSIGN(const auto nothing, Fetch(none));
  EXPECT(nothing.empty());
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer(empty, 0));
  ASSERT_OK_AND_ASSIGN(const Buffer late, async->TakeBuffer());
  Waiter sent;
  async->Transfer(nullptr, 0, 0, true, sent.Callback());
  EXPECT_OK(sent.Wait());
  EXPECT_OK(Fetch(late));
  const bool yes = true;
  ASSERT_OK_AND_ASSIGN(const Buffer flag, client->BufferFromHost(&yes, {DType::kPred, {}}, 0));
  ASSERT_OK_AND_ASSIGN(const auto byte, Fetch<uint8_t>(flag));
  EXPECT(byte == std::vector<uint8_t>{1});
}

TEST(AnAsyncBufferIsWrittenInPlace) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(auto async, client->CreateAsyncBuffer(kVector, 0));
  EXPECT(async->memory() == nullptr);
  ASSERT_OK_AND_ASSIGN(Buffer input, async->TakeBuffer());
  if (async->memory() == nullptr) return;  // a device with memory of its own
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  ExecuteOutputs outputs;
  ASSERT_OK(RunOn(*executable, {&input}, 0, &outputs));  // waits for its input
  const std::vector<float> values = {1, 2, 3, 4};
  std::memcpy(async->memory(), values.data(), 16);
  ASSERT_OK_AND_ASSIGN(const EventHandle ready, input.ReadyEvent());
  EXPECT(!ready.IsReady());
  async->Transfer(async->memory(), 0, 0, true, [](Status status) { EXPECT_OK(status); });
  ASSERT_OK_AND_ASSIGN(const auto sum, Fetch(outputs.buffers[0][0]));
  EXPECT((sum == std::vector<float>{2, 3, 4, 5}));
  ASSERT_OK_AND_ASSIGN(const auto kept, Fetch(input));
  EXPECT(kept == values);
}

TEST(TheMemoryOfAnAsyncBufferOutlivesTheBuffer) {
  NEED_PLUGIN(client);
  const TensorType large{DType::kF32, {1 << 16}};
  ASSERT_OK_AND_ASSIGN(auto async, client->CreateAsyncBuffer(large, 0));
  ASSERT_OK_AND_ASSIGN(Buffer buffer, async->TakeBuffer());
  buffer.Reset();  // freed by its client while bytes still come
  if (async->memory() != nullptr) std::memset(async->memory(), 1, static_cast<size_t>(large.ByteSize()));
  std::promise<void> done;
  async->Transfer(async->memory(), 0, 0, true, [&](Status) { done.set_value(); });
  done.get_future().wait();
}

TEST(DonationTakesTheArgument) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOneDonating));
  ASSERT_OK_AND_ASSIGN(const auto program, executable->GetOptimizedProgram());
  ASSERT_OK_AND_ASSIGN(const auto module_bytes, hlo::HloModuleOfProgram(program.format, program.code));
  ASSERT_OK_AND_ASSIGN(const auto module, hlo::ReadHloModule(module_bytes));
  EXPECT(module.aliased_parameters == std::vector<int64_t>{0});
  ASSERT_OK_AND_ASSIGN(Buffer x, Put(client, {1, 2, 3, 4}));
  ExecuteOutputs outputs;
  ASSERT_OK(RunOn(*executable, {&x}, 0, &outputs));
  EXPECT(x.IsDeleted());
  ASSERT_OK_AND_ASSIGN(const auto y, Fetch(outputs.buffers[0][0]));
  EXPECT(y == (std::vector<float>{2, 3, 4, 5}));
  EXPECT(!Fetch(x).ok());

  ASSERT_OK_AND_ASSIGN(Buffer kept, Put(client, {1, 2, 3, 4}));
  Buffer* const arguments[] = {&kept};
  const std::span<Buffer* const> row(arguments);
  const int64_t keep[] = {0};
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = 0;
  args.non_donatable = keep;
  ASSERT_OK(executable->Execute(args, &outputs));
  EXPECT(!kept.IsDeleted());
  ASSERT_OK_AND_ASSIGN(const auto still, Fetch(kept));
  EXPECT(still == (std::vector<float>{1, 2, 3, 4}));
}

TEST(DonationOfABufferNotFilledYet) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOneDonating));
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer(kVector, 0));
  ASSERT_OK_AND_ASSIGN(Buffer x, async->TakeBuffer());
  // The plugin may wait for the bytes of a donated argument, so the execute stands on a thread of its own.
  ExecuteOutputs outputs;
  auto run = std::async(std::launch::async, [&] { return RunOn(*executable, {&x}, 0, &outputs); });
  const float values[4] = {1, 2, 3, 4};
  Waiter sent;
  async->Transfer(values, 16, 0, true, sent.Callback());
  EXPECT_OK(sent.Wait());
  ASSERT(run.wait_for(kTimeout) == std::future_status::ready);
  ASSERT_OK(run.get());
  ASSERT_OK_AND_ASSIGN(const auto y, Fetch(outputs.buffers[0][0]));
  EXPECT(y == (std::vector<float>{2, 3, 4, 5}));
}

TEST(ExecuteChecksItsArguments) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  ASSERT_OK_AND_ASSIGN(Buffer x, Put(client, {1, 2, 3, 4}));
  ExecuteOutputs outputs;
  EXPECT_HAS(RunOn(*executable, {&x}, -1, &outputs).ToString(), "execute_device");
  EXPECT(RunOn(*executable, {&x}, 17, &outputs).code() == Code::kInvalidArgument);
  EXPECT(!RunOn(*executable, {&x, &x}, 0, &outputs).ok());
  EXPECT(!RunOn(*executable, {nullptr}, 0, &outputs).ok());
  EXPECT(executable->Execute({}, &outputs).code() == Code::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(Buffer wrong, Put(client, {1, 2, 3}));
  const Status status = RunOn(*executable, {&wrong}, 0, &outputs);
  EXPECT(!status.ok() || !outputs.done[0].Await().ok());
}

TEST(GarbageIsRefused) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const std::string options, ForOneDevice(""));
  EXPECT(!client->Compile("not a module", "mlir", options).ok());
  EXPECT(!client->Compile("not a module", "hlo", options).ok());
  EXPECT(client->Compile(kAddOne, "fortran", options).status().code() == Code::kInvalidArgument);
  EXPECT(!client->Compile(kAddOne, "mlir", "\xff\xff not options").ok());
  EXPECT(!client->Deserialize("not an executable").ok());
}

TEST(HostPointerReadsInPlace) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  ASSERT_OK_AND_ASSIGN(const Buffer x, Put(client, {1, 2, 3, 4}, 3));
  ASSERT_OK_AND_ASSIGN(const EventHandle ready, x.ReadyEvent());
  ASSERT_OK(ready.Await());
  ASSERT_OK_AND_ASSIGN(const void* const pointer, x.HostPointer());
  const float want[4] = {1, 2, 3, 4};
  EXPECT_EQ(std::memcmp(pointer, want, sizeof(want)), 0);
  ASSERT_OK_AND_ASSIGN(const int64_t bytes, x.OnDeviceBytes());
  EXPECT_EQ(bytes, 16);
}

TEST(ColumnMajorResultsComeBackRowMajor) {
  NEED_PLUGIN(client);
  constexpr std::string_view kTransposed = R"(module @column_major {
    func.func public @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
      %y = stablehlo.add %x, %x : tensor<2x3xf32>
      return %y : tensor<2x3xf32>
    }
  })";
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kTransposed));
  const TensorType matrix{DType::kF32, {2, 3}};
  const float values[6] = {1, 2, 3, 4, 5, 6};
  ASSERT_OK_AND_ASSIGN(Buffer x, client->BufferFromHost(values, matrix, 0));
  ExecuteOutputs outputs;
  ASSERT_OK(RunOn(*executable, {&x}, 0, &outputs));
  ASSERT_OK_AND_ASSIGN(const auto y, Fetch(outputs.buffers[0][0]));
  EXPECT(y == (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT(outputs.buffers[0][0].HostPointer().status().code() == Code::kFailedPrecondition);
  EXPECT_EQ(x.HostPointer().ok(), client->platform_name() == "cpu");
}

TEST(PinnedMemoryIsCopied) {
  NEED_PLUGIN(client);
  constexpr size_t kElements = size_t{1} << 20;
  std::vector<float> source(kElements), copy(kElements);
  std::iota(source.begin(), source.end(), 0.0f);
  if (Status status = client->CanDmaMap() ? client->DmaMap(source.data(), kElements * 4) : Unimplemented("no DmaMap");
      !status.ok()) {
    return testing::Skip(status.ToString());
  }
  ASSERT_OK(client->DmaMap(copy.data(), kElements * 4));
  ASSERT_OK_AND_ASSIGN(const auto async, client->CreateAsyncBuffer({DType::kF32, {int64_t{kElements}}}, 0));
  ASSERT_OK_AND_ASSIGN(const Buffer x, async->TakeBuffer());
  Waiter up, down;
  async->Transfer(source.data(), kElements * 4, 0, true, up.Callback());
  EXPECT_OK(up.Wait());
  x.ToHost(copy.data(), kElements * 4, down.Callback());
  EXPECT_OK(down.Wait());
  EXPECT(source == copy);
  EXPECT_OK(client->DmaUnmap(source.data()));
  EXPECT_OK(client->DmaUnmap(copy.data()));
}

TEST(CopiesBetweenDevices) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 3);
  ASSERT_OK_AND_ASSIGN(const Buffer x, Put(client, {1, 2, 3, 4}, 0));
  ASSERT_OK_AND_ASSIGN(const Buffer y, x.CopyToDevice(2));
  EXPECT_EQ(y.device(), 2);
  ASSERT_OK_AND_ASSIGN(const auto values, Fetch(y));
  EXPECT(values == (std::vector<float>{1, 2, 3, 4}));
  EXPECT(!x.CopyToDevice(9).ok());
}

TEST(DeletedBuffersSaySo) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(Buffer x, Put(client, {1, 2, 3, 4}));
  EXPECT(!x.IsDeleted());
  EXPECT_OK(x.Delete());
  EXPECT(x.IsDeleted());
  EXPECT(!Fetch(x).ok());
  Buffer moved = std::move(x);
  EXPECT(!x.valid());
  EXPECT(moved.valid());
}

TEST(HostMemoryIsReleasedOnce) {
  NEED_PLUGIN(client);
  std::vector<float> values(1 << 20, 1.5f);
  Waiter done, refused;
  ASSERT_OK_AND_ASSIGN(const Buffer x,
                       client->BufferFromHost(values.data(), {DType::kF32, {1 << 20}}, 0, done.Callback()));
  EXPECT_OK(done.Wait());
  EXPECT(!client->BufferFromHost(values.data(), {DType::kF32, {-1}}, 0, refused.Callback()).ok());
  EXPECT(!refused.Wait().ok());
  ASSERT_OK_AND_ASSIGN(const auto back, Fetch(x));
  EXPECT(back == values);
}

TEST(SpmdAcrossFourPartitions) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  constexpr std::string_view kSum = R"(module @sum attributes {mhlo.num_partitions = 4 : i32} {
    func.func public @main(%x: tensor<8xf32> {mhlo.sharding = "{devices=[4]<=[4]}"})
        -> (tensor<f32> {mhlo.sharding = "{replicated}"}) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
      return %sum : tensor<f32>
    }
  })";
  std::vector<int64_t> ids;
  for (const DeviceInfo& device : client->devices()) ids.push_back(device.id);
  ASSERT_OK_AND_ASSIGN(const std::string options, ForDevices("", 1, 4, ids));
  ASSERT_OK_AND_ASSIGN(const auto executable, client->Compile(kSum, "mlir", options));
  EXPECT_EQ(executable->num_partitions(), 4);
  EXPECT(executable->devices() == (std::vector<int>{0, 1, 2, 3}));
  ASSERT_OK_AND_ASSIGN(const auto program, executable->GetOptimizedProgram());
  ASSERT_OK_AND_ASSIGN(const auto module_bytes, hlo::HloModuleOfProgram(program.format, program.code));
  ASSERT_OK_AND_ASSIGN(const auto module, hlo::ReadHloModule(module_bytes));
  EXPECT(module.has_cross_device_instructions);
  std::vector<Buffer> shards;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(Buffer shard, Put(client, {static_cast<float>(2 * i), static_cast<float>(2 * i + 1)}, i));
    shards.push_back(std::move(shard));
  }
  std::vector<Buffer*> pointers;
  std::vector<std::span<Buffer* const>> rows;
  for (Buffer& shard : shards) pointers.push_back(&shard);
  for (size_t i = 0; i < 4; ++i) rows.emplace_back(&pointers[i], 1);
  ExecuteArgs args;
  args.arguments = rows;
  ExecuteOutputs outputs;
  for (int launch = 0; launch < 8; ++launch) {
    args.launch_id = launch;
    ASSERT_OK(executable->Execute(args, &outputs));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_OK(outputs.done[i].Await());
      EXPECT_EQ(outputs.buffers[i][0].device(), static_cast<int>(i));
      ASSERT_OK_AND_ASSIGN(const auto sum, Fetch(outputs.buffers[i][0]));
      EXPECT(sum == std::vector<float>{28});
    }
  }
  args.execute_device = 0;
  EXPECT(executable->Execute(args, &outputs).code() == Code::kInvalidArgument);
}

TEST(ManyThreadsExecuteAtOnce) {
  NEED_PLUGIN(client);
  ASSERT_OK_AND_ASSIGN(const auto executable, CompileForOne(client, kAddOne));
  std::atomic<int> right{0};
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < 4; ++thread) {
    const int device = thread % static_cast<int>(client->devices().size());
    threads.push_back(std::async(std::launch::async, [&, device] {
      ExecuteOutputs outputs;
      for (int i = 0; i < 50; ++i) {
        auto x = Put(client, {0, 0, 0, static_cast<float>(i)}, device);
        if (!x.ok() || !RunOn(*executable, {&*x}, device, &outputs).ok()) return;
        const auto y = Fetch(outputs.buffers[0][0]);
        if (y.ok() && (*y)[3] == static_cast<float>(i + 1)) right.fetch_add(1);
      }
    }));
  }
  for (auto& thread : threads) ASSERT(thread.wait_for(kTimeout) == std::future_status::ready);
  EXPECT_EQ(right.load(), 200);
}

}  // namespace
}  // namespace pathways::pjrt
