#include "csrc/controller/client_stream.h"

#include <algorithm>

#include "csrc/wire/file_bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {
namespace {

using wire::Type;

constexpr uint64_t kOverhead = 256;  // of a message that is kept, beside its bytes

}  // namespace

Status ClientStream::Push(Message& message) {
  auto held = std::make_unique<Held>();
  held->frame = std::move(message.frame);
  held->payloads = std::move(message.payloads);
  held->arrival = message.arrival;
  held->head = *wire::DecodeHead(held->frame);  // decoded before; only re-pointed at the kept frame
  held->bytes = kOverhead + held->frame.size();
  for (const Payload& payload : held->payloads) held->bytes += payload->size();
  held_bytes_ += held->bytes;
  held_.push_back(std::move(held));
  if (held_bytes_ <= kMaxBytes) return OkStatus();
  return ResourceExhausted(
      "expected at most " + std::to_string(kMaxBytes >> 20) +
      " MiB of messages behind one that waits for a compilation, memory or its turn, got more; wait for results "
      "before submitting more");
}

size_t ClientStream::runs() const {
  return static_cast<size_t>(
      std::count_if(held_.begin(), held_.end(), [](const auto& held) { return wire::IsRun(held->head.header.type); }));
}

Message ClientStream::Front() {
  Held& front = *held_.front();
  return {front.head, front.frame, front.payloads, front.arrival};
}

void ClientStream::Pop() {
  held_bytes_ -= held_.front()->bytes;
  held_.pop_front();
  wait_ = Wait::kNothing;
}

Outcome ClientStream::MustWait(Wait wait, uint64_t what) {
  wait_ = wait;
  wait_for_ = what;
  return Outcome::kMustWait;
}

std::vector<wire::Free> ClientStream::TakeFrees(const PlacesOf& places_of) {
  std::vector<wire::Free> ahead;
  if (wait_ != Wait::kMemory || held_.empty()) return ahead;
  if (named_head_ != held_.front()->arrival) {
    named_head_ = held_.front()->arrival;
    named_count_ = 0;
    named_.clear();
  }
  for (; named_count_ < held_.size(); ++named_count_) {
    Held& item = *held_[named_count_];
    if (item.head.header.type != Type::kFree) {
      Name(item, places_of);
      continue;
    }
    const auto free = wire::Decode<wire::Free>(item.head.body);
    if (!free.ok()) continue;
    wire::Free now{free->host, {}}, later{free->host, {}};
    for (const uint64_t id : free->buffers) (named_.contains(id) ? later : now).buffers.push_back(id);
    if (now.buffers.empty()) continue;
    ahead.push_back(std::move(now));
    item.frame = wire::Encode(later);
    item.head = *wire::DecodeHead(item.frame);
  }
  return ahead;
}

template <typename Run>
void ClientStream::NameRun(const Run& run) {
  named_.insert(run.arguments.begin(), run.arguments.end());
  for (size_t i = 0; i < run.assembled.size(); i += 2) named_.insert(run.assembled[i]);
  for (uint32_t k = 0; k < run.output_count; ++k) named_.insert(run.first_output + k);
}

void ClientStream::Name(const Held& item, const PlacesOf& places_of) {
  const std::string_view body = item.head.body;
  switch (item.head.header.type) {
    case Type::kRun:
      if (auto run = wire::Decode<wire::Run>(body); run.ok() && run->output_count <= wire::kMaxRunOutputs) {
        NameRun(*run);
      }
      return;
    case Type::kRunProgram:
      if (auto run = wire::Decode<wire::RunProgram>(body); run.ok() && run->output_count <= wire::kMaxRunOutputs) {
        NameRun(*run);
      }
      return;
    case Type::kRunInPlace:
      if (auto run = wire::Decode<wire::RunInPlace>(body); run.ok() && run->output_count <= wire::kMaxRunOutputs) {
        NameRun(*run);
        named_.insert(run->before.begin(), run->before.end());
        named_.insert(run->after.begin(), run->after.end());
        const std::vector<uint64_t>* buffers = places_of(run->program);
        if (buffers != nullptr) named_.insert(buffers->begin(), buffers->end());
      }
      return;
    case Type::kPut:
      if (auto put = wire::Decode<wire::Put>(body); put.ok()) named_.insert(put->buffer);
      return;
    case Type::kCopy:
      if (auto copy = wire::Decode<wire::Copy>(body); copy.ok()) named_.insert({copy->source, copy->destination});
      return;
    case Type::kSave:
      if (auto save = wire::Decode<wire::Save>(body); save.ok()) {
        for (const wire::SavedShard& shard : save->shards) named_.insert(shard.buffer);
      }
      return;
    case Type::kLoad:
      if (auto load = wire::Decode<wire::Load>(body); load.ok()) {
        for (const wire::LoadedShard& shard : load->shards) named_.insert(shard.buffer);
      }
      return;
    case Type::kFetch:
      if (auto fetch = wire::Decode<wire::Fetch>(body); fetch.ok()) named_.insert(fetch->buffer);
      return;
    default:
      return;
  }
}

}  // namespace pathways::controller
