#include "csrc/controller/input.h"

#include <cstring>
#include <utility>

namespace pathways::controller {
namespace {

// Both ends are the same program on the same machine.
struct Numbers {
  uint64_t now_ms, digest, pid, standby;
  uint64_t route, sender, address, head, payloads, gone;  // sizes
  Input::Kind kind;
};

}  // namespace

const std::vector<std::string_view>& RecordOf::Encode(const Input& input) {
  Numbers numbers{};
  numbers.now_ms = input.now_ms;
  numbers.digest = input.digest;
  numbers.pid = input.pid;
  numbers.standby = input.standby;
  numbers.route = input.route.size();
  numbers.sender = input.sender.size();
  numbers.address = input.address.size();
  numbers.head = input.head.size();
  numbers.payloads = input.payloads.size();
  numbers.gone = input.gone.size();
  numbers.kind = input.kind;
  numbers_.assign(reinterpret_cast<const char*>(&numbers), sizeof numbers);
  for (const Payload& payload : input.payloads) {
    const uint64_t size = payload->size();
    numbers_.append(reinterpret_cast<const char*>(&size), sizeof size);
  }
  numbers_.append(reinterpret_cast<const char*>(input.gone.data()), input.gone.size() * sizeof(uint64_t));
  pieces_.clear();
  for (const std::string_view piece :
       {std::string_view(numbers_), input.route, input.sender, input.address, std::string_view(input.head)}) {
    pieces_.push_back(piece);
  }
  for (const Payload& payload : input.payloads) pieces_.emplace_back(*payload);
  return pieces_;
}

Result<Input> InputOf(std::string_view record) {
  bool whole = true;
  const auto take = [&](size_t size) {
    whole = whole && size <= record.size();
    const std::string_view taken = record.substr(0, whole ? size : 0);
    record.remove_prefix(taken.size());
    return taken;
  };
  const auto number = [&] {
    uint64_t value = 0;
    if (const std::string_view bytes = take(sizeof value); whole) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  Numbers numbers{};
  if (const std::string_view bytes = take(sizeof numbers); whole) std::memcpy(&numbers, bytes.data(), sizeof numbers);
  Input input;
  input.kind = numbers.kind;
  input.now_ms = numbers.now_ms;
  input.digest = numbers.digest;
  input.pid = numbers.pid;
  input.standby = numbers.standby;
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < numbers.payloads && whole; ++i) sizes.push_back(number());
  for (uint64_t i = 0; i < numbers.gone && whole; ++i) input.gone.push_back(number());
  input.route = take(numbers.route);
  input.sender = take(numbers.sender);
  input.address = take(numbers.address);
  input.head = take(numbers.head);
  for (const uint64_t size : sizes) input.payloads.push_back(std::make_shared<const std::string>(take(size)));
  if (!whole || !record.empty()) return DataLoss("expected the record of an input, got other bytes");
  return input;
}

}  // namespace pathways::controller
