#include "csrc/values/value.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "csrc/base/thread_annotations.h"
#include "csrc/values/client.h"

namespace pathways::values {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<Value>> published PW_GUARDED_BY(mutex);
  std::unordered_multimap<uint64_t, ValuePtr> claimed PW_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static Registry* const registry = new Registry;  // leaked: values may be destroyed after static destructors
  return *registry;
}

std::atomic<uint64_t> next_token{0x70770000};

std::vector<int64_t> Descending(size_t rank) {
  std::vector<int64_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
  return order;
}

}  // namespace

ArrayType::ArrayType(TensorType of) : type(std::move(of)), minor_to_major(Descending(type.dims.size())) {}

Value::Value(std::shared_ptr<ClientState> client, PJRT_Device* device, ArrayTypePtr type)
    : Value(std::move(client), device, std::move(type), nullptr, device->devices()) {}

Value::Value(std::shared_ptr<ClientState> client, PJRT_Device* device, ArrayTypePtr type, TilingPtr tiling,
             DeviceListPtr devices)
    : client_(std::move(client)),
      device_(device),
      type_(std::move(type)),
      tiling_(std::move(tiling)),
      devices_(std::move(devices)) {}

Value::Value(std::shared_ptr<ClientState> client, PJRT_Device* device, client::Shard shard)
    : client_(std::move(client)),
      device_(device),
      type_(std::make_shared<const ArrayType>(shard.type())),
      devices_(device->devices()),
      shard_(std::move(shard)),
      resolved_(true) {}

Value::~Value() {
  const uint64_t token = token_.load(std::memory_order_relaxed);
  if (token == 0) return;
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.published.erase(token);
}

void Value::Resolve(Result<client::Shard> shard) {
  shard_.emplace(std::move(shard));
  resolved_.store(true, std::memory_order_release);
}

void Value::ResolvePadded(client::Shard padded, std::function<Result<client::Shard>()> cut) {
  padded_ = std::move(padded);
  cut_ = std::move(cut);
  resolved_.store(true, std::memory_order_release);
}

const client::Shard* Value::padded() const {
  return resolved_.load(std::memory_order_acquire) && padded_ ? &*padded_ : nullptr;
}

const Result<client::Shard>& Value::shard() const {
  if (!resolved_.load(std::memory_order_acquire)) {
    static const Result<client::Shard>* const pending =
        new Result<client::Shard>(FailedPrecondition("the value's gang has not been submitted yet"));
    return *pending;
  }
  if (padded_) {
    std::call_once(cut_once_, [this] {
      shard_.emplace(cut_());
      cut_ = nullptr;
    });
  }
  return *shard_;
}

Result<client::ProgramArgument> Value::argument() const {
  const Result<client::Shard>& found = shard();
  PW_RETURN_IF_ERROR(found.status());
  if (tiling_ != nullptr || found->buffer->devices().size() == 1) return client::ProgramArgument{found->buffer, {}};
  return client::ProgramArgument{nullptr, {*found}};
}

void Value::KeepScalar(const void* bytes, size_t size) {
  if (size > sizeof(uint64_t)) return;
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, size);
  scalar_ = bits;
}

uint64_t Value::token() {
  uint64_t token = token_.load();
  if (token != 0) return token;
  const uint64_t fresh = next_token.fetch_add(16);
  return token_.compare_exchange_strong(token, fresh) ? fresh : token;
}

uint64_t PublishToken(const ValuePtr& value) {
  const uint64_t token = value->token();
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.published.try_emplace(token, value);
  return token;
}

ValuePtr FindToken(uint64_t token) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  auto it = registry.published.find(token);
  return it == registry.published.end() ? nullptr : it->second.lock();
}

void ClaimToken(const ValuePtr& value) {
  const uint64_t token = PublishToken(value);
  value->AddHolder();
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.claimed.emplace(token, value);
}

ValuePtr ReleaseClaim(uint64_t token) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  auto it = registry.claimed.find(token);
  if (it == registry.claimed.end()) return nullptr;
  ValuePtr value = std::move(it->second);
  registry.claimed.erase(it);
  return value;
}

}  // namespace pathways::values
