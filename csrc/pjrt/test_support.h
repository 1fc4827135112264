// What this room's tests share: a real plugin's client with four devices, and waiting with a timeout.
//
// Ownership: the client is made once and leaked, as workers keep theirs to the end. Threads: the tests'.
#ifndef PTPATHWAYS_PJRT_TEST_SUPPORT_H_
#define PTPATHWAYS_PJRT_TEST_SUPPORT_H_

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/pjrt/client.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/testing/test.h"

namespace pathways::pjrt {

inline constexpr auto kTimeout = std::chrono::seconds(60);

// One client for all tests: plugins are heavy.
inline Client* SharedClient() {
  static auto* client = [] {
    auto api = Api::Load(testing::PluginPath());
    if (!api.ok()) return static_cast<std::shared_ptr<Client>*>(nullptr);
    auto made = Client::Create(*api, {{"cpu_device_count", int64_t{4}}});
    return made.ok() ? new std::shared_ptr<Client>(*made) : nullptr;
  }();
  return client == nullptr ? nullptr : client->get();
}

#define NEED_PLUGIN(client)                                                  \
  if (testing::PluginPath().empty()) {                                       \
    testing::Skip("set PW_TEST_PJRT_PLUGIN to the path of a PJRT plugin");   \
    return;                                                                  \
  }                                                                          \
  ::pathways::pjrt::Client* const client = ::pathways::pjrt::SharedClient(); \
  ASSERT(client != nullptr)

// Waits for a callback with a timeout, so that a lost one fails the test instead of hanging it.
class Waiter {
 public:
  std::function<void(Status)> Callback() {
    return [promise = promise_](Status status) { promise->set_value(std::move(status)); };
  }
  Status Wait() {
    if (future_.wait_for(kTimeout) != std::future_status::ready) return DeadlineExceeded("the callback never came");
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<Status>> promise_ = std::make_shared<std::promise<Status>>();
  std::future<Status> future_ = promise_->get_future();
};

template <typename T = float>
Result<std::vector<T>> Fetch(const Buffer& buffer) {
  std::vector<T> out(static_cast<size_t>(buffer.type().ElementCount()));
  Waiter waiter;
  buffer.ToHost(out.data(), out.size() * sizeof(T), waiter.Callback());
  PW_RETURN_IF_ERROR(waiter.Wait());
  return out;
}

inline Result<Buffer> Put(Client* client, const std::vector<float>& values, int device = 0) {
  return client->BufferFromHost(values.data(), TensorType{DType::kF32, {static_cast<int64_t>(values.size())}}, device);
}

// What a module makes of two arrays, on the first device.
inline Result<std::vector<float>> RunTwo(Client* client, const std::string& module, const TensorType& left_type,
                                         const std::vector<float>& left, const TensorType& right_type,
                                         const std::vector<float>& right) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  PW_ASSIGN_OR_RETURN(Buffer a, client->BufferFromHost(left.data(), left_type, 0));
  PW_ASSIGN_OR_RETURN(Buffer b, client->BufferFromHost(right.data(), right_type, 0));
  const std::array<Buffer*, 2> pointers{&a, &b};
  const std::span<Buffer* const> row(pointers);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = 0;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  return Fetch(outputs.buffers.at(0).at(0));
}

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_TEST_SUPPORT_H_
