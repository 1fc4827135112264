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
const TensorType kProbed{DType::kF32, {4}};

Status Negate(const pjrt::Executable& executable, pjrt::Buffer& argument, pjrt::ExecuteOutputs* outputs) {
  pjrt::Buffer* const row[] = {&argument};
  const std::span<pjrt::Buffer* const> rows[] = {row};
  pjrt::ExecuteArgs call;
  call.arguments = rows;
  call.execute_device = 0;
  return executable.Execute(call, outputs);
}

Result<bool> EnqueueWaits(const std::shared_ptr<pjrt::Client>& client, const pjrt::Executable& executable) {
  PW_ASSIGN_OR_RETURN(const auto argument, client->CreateAsyncBuffer(kProbed, 0));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, argument->TakeBuffer());
  pjrt::ExecuteOutputs outputs;
  std::promise<Status> returned;
  std::future<Status> outcome = returned.get_future();
  std::thread enqueue([&] { returned.set_value(Negate(executable, buffer, &outputs)); });
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

// Whether the event is set with an error.
bool Fails(const pjrt::EventHandle& event, std::chrono::milliseconds patience) {
  const auto outcome = std::make_shared<std::promise<Status>>();
  std::future<Status> told = outcome->get_future();
  event.OnReady([outcome](Status status) { outcome->set_value(std::move(status)); });
  return told.wait_for(patience) == std::future_status::ready && !told.get().ok();
}

Result<bool> Fails(const pjrt::ExecuteOutputs& outputs, std::chrono::milliseconds patience) {
  PW_ASSIGN_OR_RETURN(const pjrt::EventHandle ready, outputs.buffers.at(0).at(0).ReadyEvent());
  // Both, whatever the first says: nothing may be under way when the buffers go.
  const bool done_fails = Fails(outputs.done.at(0), patience), result_fails = Fails(ready, patience);
  return done_fails && result_fails;
}

}  // namespace

Result<ProbedEnqueue> ProbeEnqueue(const std::shared_ptr<pjrt::Client>& client, std::chrono::milliseconds patience) {
  PW_ASSIGN_OR_RETURN(const std::string options, pjrt::ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(kNegate, "mlir", options));
  ProbedEnqueue probed;
  PW_ASSIGN_OR_RETURN(probed.waits, EnqueueWaits(client, *executable));
  if (probed.waits) return probed;
  PW_ASSIGN_OR_RETURN(const auto argument, client->CreateAsyncBuffer(kProbed, 0));
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, argument->TakeBuffer());
  pjrt::ExecuteOutputs first, second;
  PW_RETURN_IF_ERROR(Negate(*executable, buffer, &first));
  PW_RETURN_IF_ERROR(Negate(*executable, first.buffers.at(0).at(0), &second));
  PW_RETURN_IF_ERROR(argument->SetError(Internal("an argument that fails, to see what the plugin makes of it")));
  PW_ASSIGN_OR_RETURN(const pjrt::EventHandle ready, buffer.ReadyEvent());
  probed.ends_waits = Fails(ready, patience);  // whatever the plugin says when it sets the event (TransferFailure)
  if (!probed.ends_waits) return probed;
  PW_ASSIGN_OR_RETURN(const bool first_fails, Fails(first, patience));
  PW_ASSIGN_OR_RETURN(const bool second_fails, Fails(second, patience));
  probed.hands_errors_on = first_fails && second_fails;
  return probed;
}

}  // namespace pathways::worker
