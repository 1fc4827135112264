// Lanes: one-way queues of chunks from a device on one host to a device on another, either a ring in shared memory or
// messages with credits. A lane holds a fixed number of chunks; who sends more waits until some are taken.
//
// Ownership: an OutLane owns the ring it made, an InLane its mapping of one; both borrow bells.
// Threads:   one thread at a time uses a lane (that of the one meeting its device is in); what the data thread hands
//            over (Deliver, Credit) may come at any time.
// Locks:     InLane::mutex_ guards the queue of messages.
#ifndef PTPATHWAYS_COLLECTIVE_LANE_H_
#define PTPATHWAYS_COLLECTIVE_LANE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/collective/gang.h"
#include "csrc/collective/segment.h"
#include "csrc/transport/frame.h"

namespace pathways::collective {

// Where a chunk belongs. `number` is of the instruction, `ordinal` counts the device's meetings in its launch.
struct ChunkHeader {
  LaunchId launch;
  uint64_t offset = 0;  // in the stream of its round
  uint64_t total = 0;   // where that stream ends
  uint32_t size = 0;
  uint32_t number = 0;
  uint32_t ordinal = 0;
  uint32_t round = 0;
};

struct LaneShape {
  size_t chunk_bytes = 128 << 10;
  uint32_t slots = 8;
};

// A ring as it lies in a segment: one line that the receiver writes, then slots. A slot is a line with ticket and
// header, which has room for the bytes of the smallest chunks, and the bytes of others.
class Ring {
 public:
  static size_t BytesFor(const LaneShape& shape);
  // Over zeroed memory of that size, by the sender.
  static Ring Make(std::byte* memory, const LaneShape& shape);
  // DATA_LOSS: not a ring.
  static Result<Ring> Attach(std::byte* memory, size_t bytes);

  const LaneShape& shape() const { return shape_; }
  // Sender. How many chunks the receiver has taken; memory for the payload of chunk `index`; and the hand-over.
  uint64_t Taken() const;
  std::byte* Payload(uint64_t index, size_t size) const;
  void Publish(uint64_t index, const ChunkHeader& header);
  // Receiver. False when chunk `index` is not there yet.
  bool Look(uint64_t index, ChunkHeader* header, const std::byte** payload) const;
  void Take(uint64_t taken);

 private:
  struct Control;
  struct Slot;
  Slot* SlotAt(uint64_t index) const;
  Ring(std::byte* memory, const LaneShape& shape);
  std::byte* memory_ = nullptr;
  LaneShape shape_;
};

class OutLane {
 public:
  // Sends one chunk as a message.
  using SendChunk = std::function<Status(const ChunkHeader& header, std::string payload)>;

  OutLane(std::unique_ptr<Segment> segment, Ring ring, Bell* receiver);
  OutLane(LaneShape shape, SendChunk send);

  size_t chunk_bytes() const { return shape_.chunk_bytes; }
  bool in_memory() const { return ring_ != nullptr; }
  bool CanPush();
  // Memory for the next chunk, after CanPush; then Push.
  std::byte* Begin(size_t size);
  Status Push(const ChunkHeader& header);
  // The receiver has taken so many message chunks more.
  void Credit(uint32_t count) { credited_.fetch_add(count, std::memory_order_release); }

 private:
  const LaneShape shape_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<Ring> ring_;
  Bell* receiver_ = nullptr;
  SendChunk send_;
  std::string payload_;
  uint64_t pushed_ = 0;
  uint64_t known_taken_ = 0;
  std::atomic<uint64_t> credited_{0};
};

class InLane {
 public:
  // Tells the sender that so many chunks more have been taken.
  using SendTaken = std::function<Status(uint32_t count)>;
  explicit InLane(SendTaken send_taken);

  bool in_memory() const { return ring_ != nullptr; }
  void Attach(std::unique_ptr<Segment> segment, Ring ring, Bell* sender);

  struct Chunk {
    ChunkHeader header;
    const std::byte* payload = nullptr;
  };
  // The oldest chunk, valid until Pop; nullptr when there is none.
  const Chunk* Peek();
  Status Pop();

  // A chunk that came as a message. RESOURCE_EXHAUSTED: more than a sender may have outstanding.
  Status Deliver(const ChunkHeader& header, transport::Frame payload);

 private:
  static constexpr size_t kMessagesMax = 1024;
  struct Message {
    ChunkHeader header;
    transport::Frame payload;
  };

  std::unique_ptr<Segment> segment_;
  std::unique_ptr<Ring> ring_;
  Bell* sender_ = nullptr;
  const SendTaken send_taken_;
  Chunk chunk_;
  bool peeked_ = false;
  bool from_message_ = false;
  uint64_t taken_ = 0;
  uint32_t uncredited_ = 0;

  std::mutex mutex_;
  std::deque<Message> messages_ PW_GUARDED_BY(mutex_);  // its front stays in place while it is peeked
  std::atomic<uint32_t> message_count_{0};              // of messages_
  std::unique_ptr<std::byte[]> aligned_;                // a message's bytes, where libzmq left them at an odd address
  size_t aligned_bytes_ = 0;
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_LANE_H_
