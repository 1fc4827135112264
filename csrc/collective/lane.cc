#include "csrc/collective/lane.h"

#include <cstring>
#include <utility>

namespace pathways::collective {
namespace {

// Message chunks are credited in batches of this many; a sender has more slots than that.
constexpr uint32_t kCreditBatch = 2;

}  // namespace

struct Ring::Control {
  // Written once by the sender.
  uint64_t chunk_bytes;
  uint64_t slots;
  uint64_t unused[6];
  // Written by the receiver.
  alignas(64) std::atomic<uint64_t> taken;
};

struct Ring::Slot {
  std::atomic<uint64_t> ticket;  // index of the chunk in it, plus one
  ChunkHeader header;
  std::byte small[8];
};

size_t Ring::BytesFor(const LaneShape& shape) {
  static_assert(sizeof(Control) == 128 && sizeof(Slot) == 64);
  return sizeof(Control) + shape.slots * (sizeof(Slot) + shape.chunk_bytes);
}

Ring::Ring(std::byte* memory, const LaneShape& shape) : memory_(memory), shape_(shape) {}

Ring Ring::Make(std::byte* memory, const LaneShape& shape) {
  auto* control = reinterpret_cast<Control*>(memory);
  control->chunk_bytes = shape.chunk_bytes;
  control->slots = shape.slots;
  return Ring(memory, shape);
}

Result<Ring> Ring::Attach(std::byte* memory, size_t bytes) {
  LaneShape shape;
  if (bytes >= sizeof(Control)) {
    const auto* control = reinterpret_cast<const Control*>(memory);
    shape.chunk_bytes = control->chunk_bytes;
    shape.slots = static_cast<uint32_t>(control->slots);
  }
  if (bytes < sizeof(Control) || shape.slots == 0 || shape.slots > bytes || shape.chunk_bytes > bytes ||
      BytesFor(shape) > bytes) {
    return DataLoss("a lane's shared memory must hold its slots, and does not");
  }
  return Ring(memory, shape);
}

Ring::Slot* Ring::SlotAt(uint64_t index) const {
  return reinterpret_cast<Slot*>(memory_ + sizeof(Control) +
                                 index % shape_.slots * (sizeof(Slot) + shape_.chunk_bytes));
}

uint64_t Ring::Taken() const {
  return reinterpret_cast<const Control*>(memory_)->taken.load(std::memory_order_acquire);
}

std::byte* Ring::Payload(uint64_t index, size_t size) const {
  Slot* slot = SlotAt(index);
  return size <= sizeof(slot->small) ? slot->small : reinterpret_cast<std::byte*>(slot + 1);
}

void Ring::Publish(uint64_t index, const ChunkHeader& header) {
  Slot* slot = SlotAt(index);
  slot->header = header;
  slot->ticket.store(index + 1, std::memory_order_release);
}

bool Ring::Look(uint64_t index, ChunkHeader* header, const std::byte** payload) const {
  Slot* slot = SlotAt(index);
  if (slot->ticket.load(std::memory_order_acquire) != index + 1) return false;
  *header = slot->header;
  if (header->size > shape_.chunk_bytes) header->size = static_cast<uint32_t>(shape_.chunk_bytes);
  *payload = header->size <= sizeof(slot->small) ? slot->small : reinterpret_cast<std::byte*>(slot + 1);
  return true;
}

void Ring::Take(uint64_t taken) { reinterpret_cast<Control*>(memory_)->taken.store(taken, std::memory_order_release); }

OutLane::OutLane(std::unique_ptr<Segment> segment, Ring ring, Bell* receiver)
    : shape_(ring.shape()), segment_(std::move(segment)), ring_(std::make_unique<Ring>(ring)), receiver_(receiver) {}

OutLane::OutLane(LaneShape shape, SendChunk send) : shape_(shape), send_(std::move(send)) {}

bool OutLane::CanPush() {
  if (pushed_ - known_taken_ < shape_.slots) return true;
  known_taken_ = ring_ ? ring_->Taken() : credited_.load(std::memory_order_acquire);
  return pushed_ - known_taken_ < shape_.slots;
}

std::byte* OutLane::Begin(size_t size) {
  if (ring_) return ring_->Payload(pushed_, size);
  payload_.resize(size);
  return reinterpret_cast<std::byte*>(payload_.data());
}

Status OutLane::Push(const ChunkHeader& header) {
  if (!ring_) {
    ++pushed_;
    return send_(header, std::exchange(payload_, {}));
  }
  ring_->Publish(pushed_++, header);
  receiver_->Ring();
  return OkStatus();
}

InLane::InLane(SendTaken send_taken) : send_taken_(std::move(send_taken)) {}

void InLane::Attach(std::unique_ptr<Segment> segment, Ring ring, Bell* sender) {
  segment_ = std::move(segment);
  ring_ = std::make_unique<Ring>(ring);
  sender_ = sender;
}

const InLane::Chunk* InLane::Peek() {
  if (peeked_) return &chunk_;
  if (ring_ && ring_->Look(taken_, &chunk_.header, &chunk_.payload)) {
    from_message_ = false;
  } else if (message_count_.load(std::memory_order_acquire) > 0) {
    std::lock_guard lock(mutex_);
    const Message& message = messages_.front();
    chunk_.header = message.header;
    chunk_.payload = reinterpret_cast<const std::byte*>(message.payload.data());
    if (reinterpret_cast<uintptr_t>(chunk_.payload) % alignof(std::max_align_t) != 0) {
      if (aligned_bytes_ < message.payload.size()) {
        aligned_bytes_ = message.payload.size();
        aligned_ = std::make_unique_for_overwrite<std::byte[]>(aligned_bytes_);
      }
      std::memcpy(aligned_.get(), chunk_.payload, message.payload.size());
      chunk_.payload = aligned_.get();
    }
    from_message_ = true;
  } else {
    return nullptr;
  }
  peeked_ = true;
  return &chunk_;
}

Status InLane::Pop() {
  peeked_ = false;
  if (!from_message_) {
    ring_->Take(++taken_);
    sender_->Ring();
    return OkStatus();
  }
  {
    std::lock_guard lock(mutex_);
    messages_.pop_front();
    message_count_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (++uncredited_ < kCreditBatch) return OkStatus();
  return send_taken_(std::exchange(uncredited_, 0));
}

Status InLane::Deliver(const ChunkHeader& header, transport::Frame payload) {
  std::lock_guard lock(mutex_);
  if (messages_.size() >= kMessagesMax) {
    return ResourceExhausted("a host may have " + std::to_string(kMessagesMax) +
                             " chunks of a collective on their way to a device, and sent more");
  }
  messages_.push_back({header, std::move(payload)});
  message_count_.fetch_add(1, std::memory_order_release);
  return OkStatus();
}

}  // namespace pathways::collective
