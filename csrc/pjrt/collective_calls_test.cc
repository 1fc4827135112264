// Partitioned modules whose collectives are served by this process, against the plugin's own runtime.
#include "csrc/pjrt/collective_calls.h"

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "csrc/hlo/edit.h"
#include "csrc/hlo/serve_collectives.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/custom_calls.h"
#include "csrc/pjrt/partition.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

constexpr int kShards = 4;

// Shard i on device i of this process: all meet at each collective, and the last to come does what the definition of
// the collective says, element by element (f32 only).
class Reference : public hlo::CollectiveBackend {
 public:
  Status Meet(int device, const hlo::CollectiveOp& op, std::span<const hlo::CollectiveOperand> operands) override {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    order_[device].push_back(op.number);
    calls_[device] = {op, {operands.begin(), operands.end()}};
    if (calls_.size() == kShards) {
      for (auto& [shard, call] : calls_) Serve(shard, call);
      calls_.clear();
      ++round_;
      changed_.notify_all();
      return OkStatus();
    }
    if (!changed_.wait_for(lock, kTimeout, [&] { return round_ > round; })) {
      return DeadlineExceeded("not every shard came to collective " + std::to_string(op.number));
    }
    return OkStatus();
  }
  std::map<int, std::vector<uint32_t>> TakeOrder() { return std::exchange(order_, {}); }

 private:
  struct Call {
    hlo::CollectiveOp op;
    std::vector<hlo::CollectiveOperand> operands;
  };
  using Floats = std::span<const float>;
  static Floats In(const hlo::CollectiveOperand& operand) {
    return {reinterpret_cast<const float*>(operand.input.data()), operand.input.size() / 4};
  }
  static std::span<float> Out(const hlo::CollectiveOperand& operand) {
    return {reinterpret_cast<float*>(operand.output.data()), operand.output.size() / 4};
  }
  static float Reduce(hlo::Reduction reduction, float a, float b) {
    return reduction == hlo::Reduction::kMax ? std::max(a, b) : reduction == hlo::Reduction::kSum ? a + b : a * b;
  }

  void Serve(int shard, Call& call) {
    if (call.op.kind == hlo::CollectiveKind::kPermute) {
      std::span<float> out = Out(call.operands[0]);
      std::fill(out.begin(), out.end(), 0.0f);
      for (const auto& [from, to] : call.op.pairs) {
        if (static_cast<int>(to) != shard) continue;
        const Floats in = In(calls_.at(static_cast<int>(from)).operands[0]);
        std::copy(in.begin(), in.end(), out.begin());
      }
      return;
    }
    std::vector<uint32_t> group;
    size_t at = 0;
    for (const auto& members : call.op.groups) {
      for (size_t i = 0; i < members.size(); ++i) {
        if (static_cast<int>(members[i]) == shard) group = members, at = i;
      }
    }
    for (size_t k = 0; k < call.operands.size(); ++k) {
      const hlo::CollectiveOperand& mine = call.operands[k];
      const auto rows = static_cast<size_t>(mine.outer);
      const std::span<float> out = Out(mine);
      const size_t block = out.size() / rows / (call.op.kind == hlo::CollectiveKind::kReduceScatter ? 1 : group.size());
      for (size_t i = 0; i < group.size(); ++i) {
        const Floats in = In(calls_.at(static_cast<int>(group[i])).operands[k]);
        for (size_t row = 0; row < rows; ++row) {
          if (call.op.kind == hlo::CollectiveKind::kAllGather) {
            const size_t from = row * (in.size() / rows);
            std::copy_n(in.begin() + from, in.size() / rows, out.begin() + (row * group.size() + i) * block);
          } else if (call.op.kind == hlo::CollectiveKind::kAllToAll) {
            std::copy_n(in.begin() + (row * group.size() + at) * block, block,
                        out.begin() + (row * group.size() + i) * block);
          } else if (row == 0) {  // reductions: the shapes tell which part of the inputs
            const bool scatter = call.op.kind == hlo::CollectiveKind::kReduceScatter;
            for (size_t e = 0; e < out.size(); ++e) {
              const size_t width = out.size() / rows;
              const float value = scatter ? in[(e / width * group.size() + at) * width + e % width] : in[e];
              out[e] = i == 0 ? value : Reduce(call.op.reduction, out[e], value);
            }
          }
        }
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t round_ = 0;
  std::map<int, Call> calls_;
  std::map<int, std::vector<uint32_t>> order_;
};

using Values = std::vector<std::vector<float>>;

// Argument j of shard i holds i, i + 0.5, ...
Result<std::vector<Buffer>> Arguments(Client* client, const std::vector<TensorType>& types, int shard) {
  std::vector<Buffer> out;
  for (const TensorType& type : types) {
    std::vector<float> values(static_cast<size_t>(type.ElementCount()));
    for (size_t e = 0; e < values.size(); ++e) values[e] = static_cast<float>(shard) + 0.5f * static_cast<float>(e);
    PW_ASSIGN_OR_RETURN(Buffer buffer, client->BufferFromHost(values.data(), type, shard));
    out.push_back(std::move(buffer));
  }
  return out;
}

// Every result of every shard, one after another.
Result<Values> Collect(const std::vector<std::vector<Buffer>>& buffers) {
  Values out;
  for (const auto& row : buffers) {
    for (const Buffer& buffer : row) {
      PW_ASSIGN_OR_RETURN(std::vector<float> values, Fetch(buffer));
      out.push_back(std::move(values));
    }
  }
  return out;
}

Result<Values> ByThePlugin(Client* client, const std::string& module, const std::string& format,
                           const std::vector<TensorType>& types) {
  std::vector<int64_t> ids;
  for (int i = 0; i < kShards; ++i) ids.push_back(client->devices()[static_cast<size_t>(i)].id);
  PW_ASSIGN_OR_RETURN(const std::string options, ForDevices("", 1, kShards, ids));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, format, options));
  std::vector<std::vector<Buffer>> held;
  std::vector<std::vector<Buffer*>> pointers(kShards);
  std::vector<std::span<Buffer* const>> rows;
  for (int i = 0; i < kShards; ++i) {
    PW_ASSIGN_OR_RETURN(std::vector<Buffer> arguments, Arguments(client, types, i));
    held.push_back(std::move(arguments));
    for (Buffer& buffer : held.back()) pointers[static_cast<size_t>(i)].push_back(&buffer);
  }
  for (auto& row : pointers) rows.emplace_back(row);
  ExecuteArgs args;
  args.arguments = rows;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  return Collect(outputs.buffers);
}

// Each shard is an execution of its own, held back until all of them have been enqueued.
Result<Values> ByThisProcess(Client* client, const ShardProgram& shard, Reference* reference,
                             hlo::ServedModule* served) {
  PW_RETURN_IF_ERROR(RegisterCustomCalls(*client->api(), "cpu"));
  PW_ASSIGN_OR_RETURN(*served, hlo::ServeCollectives(shard.module, kShards));
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneShard(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(served->module, "hlo", options));
  SetCollectiveBackend(reference);
  std::vector<std::vector<Buffer>> held, results;
  std::vector<std::unique_ptr<AsyncBuffer>> tickets;
  for (int i = 0; i < kShards; ++i) {
    PW_ASSIGN_OR_RETURN(std::vector<Buffer> arguments, Arguments(client, shard.info.parameters, i));
    PW_ASSIGN_OR_RETURN(auto ticket, client->CreateAsyncBuffer(TensorType{DType::kU32, {}}, i));
    PW_ASSIGN_OR_RETURN(Buffer ticket_buffer, ticket->TakeBuffer());
    arguments.push_back(std::move(ticket_buffer));
    tickets.push_back(std::move(ticket));
    held.push_back(std::move(arguments));
    std::vector<Buffer*> pointers;
    for (Buffer& buffer : held.back()) pointers.push_back(&buffer);
    const std::span<Buffer* const> row(pointers);
    ExecuteArgs args;
    args.arguments = {&row, 1};
    args.execute_device = i;
    ExecuteOutputs outputs;
    PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
    results.push_back(std::move(outputs.buffers[0]));
  }
  static constexpr uint32_t kNumbers[kShards] = {0, 1, 2, 3};
  for (size_t i = 0; i < kShards; ++i) {
    tickets[i]->Transfer(&kNumbers[i], sizeof kNumbers[i], 0, true, [](const Status&) {});
  }
  auto values = Collect(results);
  SetCollectiveBackend(nullptr);
  return values;
}

void CheckAgainstThePlugin(Client* client, const std::string& module, std::vector<std::string> expected) {
  const Partitioner partitioner(client->api(), "");
  ASSERT_OK_AND_ASSIGN(const ShardProgram shard, partitioner.Partition(module, "mlir", "", kShards));
  for (const std::string& opcode : expected) {
    EXPECT(std::find(shard.collectives.begin(), shard.collectives.end(), opcode) != shard.collectives.end());
  }
  Reference reference;
  hlo::ServedModule served;
  ASSERT_OK_AND_ASSIGN(const Values ours, ByThisProcess(client, shard, &reference, &served));
  EXPECT(served.collectives > 0);
  ASSERT_OK_AND_ASSIGN(const Values theirs, ByThePlugin(client, module, "mlir", shard.info.parameters));
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT(ours[i] == theirs[i]);
  const auto order = reference.TakeOrder();
  ASSERT_EQ(order.size(), size_t{kShards});
  for (const auto& [device, numbers] : order) EXPECT(numbers == order.begin()->second);
}

std::string Module(const std::string& arguments, const std::string& results, const std::string& body) {
  return "module @served attributes {mhlo.num_partitions = 4 : i32} {\n  func.func public @main(" + arguments +
         ") -> (" + results + ") {\n" + body + "  }\n}\n";
}
constexpr char kRows[] = R"({mhlo.sharding = "{devices=[4,1]<=[4]}"})";
constexpr char kColumns[] = R"({mhlo.sharding = "{devices=[1,4]<=[4]}"})";
constexpr char kReplicated2[] = R"({mhlo.sharding = "{replicated}"})";
constexpr char kTiles[] = R"({mhlo.sharding = "{devices=[2,2]<=[4]}"})";

TEST(GatheredAlongEitherDimension) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  for (const char* layout : {kRows, kColumns, kTiles}) {
    CheckAgainstThePlugin(
        client,
        Module(std::string("%x: tensor<8x8xf32> ") + layout, std::string("tensor<8x8xf32> ") + kReplicated2,
               "    %y = stablehlo.add %x, %x : tensor<8x8xf32>\n    return %y : tensor<8x8xf32>\n"),
        {});
  }
}

TEST(ReducedOverAllShards) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const std::string body = R"(    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %max = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
    %wide = stablehlo.broadcast_in_dim %max, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %y = stablehlo.multiply %sum, %wide : tensor<4xf32>
    return %y : tensor<4xf32>
)";
  CheckAgainstThePlugin(
      client,
      Module(std::string("%x: tensor<8x4xf32> ") + kRows, R"(tensor<4xf32> {mhlo.sharding = "{replicated}"})", body),
      {"all-reduce"});
}

TEST(RowsToColumnsAndTilesInAnotherOrder) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  const std::string body = "    %y = stablehlo.negate %x : tensor<8x8xf32>\n    return %y : tensor<8x8xf32>\n";
  CheckAgainstThePlugin(
      client, Module(std::string("%x: tensor<8x8xf32> ") + kRows, std::string("tensor<8x8xf32> ") + kColumns, body),
      {"all-to-all"});
  CheckAgainstThePlugin(client,
                        Module(std::string("%x: tensor<8x8xf32> ") + kTiles,
                               R"(tensor<8x8xf32> {mhlo.sharding = "{devices=[2,2]<=[2,2]T(1,0)}"})", body),
                        {"collective-permute"});
}

TEST(CollectivesInsideALoop) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  // Three times: the sum over all rows is taken, which no shard has alone, and the rows change by it.
  const std::string body = R"(    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %i0 = stablehlo.constant dense<0> : tensor<i32>
    %n = stablehlo.constant dense<3> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %first = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %loop:2 = stablehlo.while(%i = %i0, %a = %x) : tensor<i32>, tensor<8x4xf32>
      cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
             stablehlo.return %c : tensor<i1> }
      do { %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
           %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
           %d = stablehlo.subtract %b, %a : tensor<8x4xf32>
           %j = stablehlo.add %i, %one : tensor<i32>
           stablehlo.return %j, %d : tensor<i32>, tensor<8x4xf32> }
    %last = stablehlo.reduce(%x init: %zero) applies stablehlo.multiply across dimensions = [0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    %both = stablehlo.add %first, %last : tensor<4xf32>
    %wide = stablehlo.broadcast_in_dim %both, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
    %y = stablehlo.add %loop#1, %wide : tensor<8x4xf32>
    return %y : tensor<8x4xf32>
)";
  CheckAgainstThePlugin(
      client, Module(std::string("%x: tensor<8x4xf32> ") + kRows, std::string("tensor<8x4xf32> ") + kRows, body),
      {"all-reduce"});
}

}  // namespace
}  // namespace pathways::pjrt
