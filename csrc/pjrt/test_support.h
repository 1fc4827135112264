// What this room's tests share: a real plugin's client, and waiting with a timeout.
//
// The plugin is the CPU one with four devices, or the one of PW_TEST_PJRT_PLUGIN, created with the options of
// PW_TEST_PJRT_OPTIONS: "preallocate:bool=0;memory_fraction:float=0.5;visible_devices:ints=0,1;allocator=bfc".
//
// Ownership: the client is made once and leaked, as workers keep theirs to the end. Threads: the tests'.
#ifndef PTPATHWAYS_PJRT_TEST_SUPPORT_H_
#define PTPATHWAYS_PJRT_TEST_SUPPORT_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "csrc/pjrt/client.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/testing/test.h"

namespace pathways::pjrt {

inline constexpr auto kTimeout = std::chrono::seconds(60);

inline constexpr char kOptionsVariable[] = "PW_TEST_PJRT_OPTIONS";

inline NamedValues ClientOptions() {
  const char* given = std::getenv(kOptionsVariable);
  if (given == nullptr) return {{"cpu_device_count", int64_t{4}}};
  NamedValues options;
  std::istringstream text(given);
  for (std::string option; std::getline(text, option, ';');) {
    const std::string key = option.substr(0, option.find('='));
    const std::string value = option.substr(std::min(key.size() + 1, option.size()));
    const std::string name = key.substr(0, key.find(':'));
    const std::string type = key.substr(std::min(name.size() + 1, key.size()));
    if (type == "int") {
      options[name] = int64_t{std::stoll(value)};
    } else if (type == "bool") {
      options[name] = value == "1";
    } else if (type == "float") {
      options[name] = std::stof(value);
    } else if (type == "ints") {
      std::vector<int64_t> numbers;
      std::istringstream list(value);
      for (std::string number; std::getline(list, number, ',');) numbers.push_back(std::stoll(number));
      options[name] = std::move(numbers);
    } else {
      options[name] = value;
    }
  }
  return options;
}

// One client for all tests: plugins are heavy.
inline Client* SharedClient() {
  static auto* client = [] {
    auto api = Api::Load(testing::PluginPath());
    if (!api.ok()) return static_cast<std::shared_ptr<Client>*>(nullptr);
    auto made = Client::Create(*api, ClientOptions());
    if (!made.ok()) std::cerr << made.status().ToString() << std::endl;
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

// After NEED_PLUGIN: of what only CPU devices have, such as our custom calls.
#define NEED_CPU(client)                                                                   \
  if ((client)->platform_name() != "cpu") {                                                \
    testing::Skip("of CPU devices; the plugin has those of " + (client)->platform_name()); \
    return;                                                                                \
  }

// After NEED_PLUGIN.
#define NEED_DEVICES(client, count)                                                                           \
  if ((client)->devices().size() < size_t{count}) {                                                           \
    testing::Skip("the plugin has " + std::to_string((client)->devices().size()) + " of " #count " devices"); \
    return;                                                                                                   \
  }

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

// What an executable makes of all these arguments, on one device.
inline Result<ExecuteOutputs> ExecuteOn(const Executable& executable, std::span<Buffer> arguments, int device = 0) {
  std::vector<Buffer*> pointers;
  for (Buffer& argument : arguments) pointers.push_back(&argument);
  const std::span<Buffer* const> row(pointers);
  ExecuteArgs args;
  args.arguments = {&row, 1};
  args.execute_device = device;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable.Execute(args, &outputs));
  return outputs;
}

// What a module makes of two arrays, on the first device.
inline Result<std::vector<float>> RunTwo(Client* client, const std::string& module, const TensorType& left_type,
                                         const std::vector<float>& left, const TensorType& right_type,
                                         const std::vector<float>& right) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  std::vector<Buffer> arguments;
  for (const auto& [values, type] : {std::pair(&left, &left_type), std::pair(&right, &right_type)}) {
    PW_ASSIGN_OR_RETURN(Buffer argument, client->BufferFromHost(values->data(), *type, 0));
    arguments.push_back(std::move(argument));
  }
  PW_ASSIGN_OR_RETURN(const ExecuteOutputs outputs, ExecuteOn(*executable, arguments));
  return Fetch(outputs.buffers.at(0).at(0));
}

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_TEST_SUPPORT_H_
