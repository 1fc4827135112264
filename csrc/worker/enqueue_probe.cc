#include "csrc/worker/enqueue_probe.h"

#include <array>
#include <future>
#include <span>
#include <string_view>
#include <thread>

#include "csrc/base/tensor_type.h"
#include "csrc/pjrt/compile_options.h"

namespace pathways::worker {
namespace {

constexpr std::string_view kNegate = R"(module @enqueue_probe {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})";

}  // namespace

Result<bool> EnqueueWaitsForArguments(const std::shared_ptr<pjrt::Client>& client) {
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(kNegate, "mlir", options));
  const TensorType type{DType::kF32, {4}};
  PW_ASSIGN_OR_RETURN(const auto argument, client->CreateAsyncBuffer(type, 0));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, argument->TakeBuffer());
  pjrt::Buffer* const row[] = {&buffer};
  const std::span<pjrt::Buffer* const> rows[] = {row};
  pjrt::ExecuteArgs call;
  call.arguments = rows;
  call.execute_device = 0;
  pjrt::ExecuteOutputs outputs;
  std::promise<Status> returned;
  std::future<Status> outcome = returned.get_future();
  std::thread enqueue([&] { returned.set_value(executable->Execute(call, &outputs)); });
  const bool waits = outcome.wait_for(kEnqueuePatience) == std::future_status::timeout;
  static constexpr std::array<float, 4> kValues = {};
  std::promise<Status> sent;
  argument->Transfer(kValues.data(), sizeof kValues, 0, true,
                     [&sent](const Status& status) { sent.set_value(status); });
  const Status arrived = sent.get_future().get();
  enqueue.join();
  PW_RETURN_IF_ERROR(arrived);
  PW_RETURN_IF_ERROR(outcome.get());
  for (const pjrt::EventHandle& done : outputs.done) PW_RETURN_IF_ERROR(done.Await());
  return waits;
}

}  // namespace pathways::worker
