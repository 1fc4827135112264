// ClientStream: a client's messages that wait, in their order, for the one at the head, which waits for a compilation,
// memory, its turn or a host. What exceeds kMaxBytes ends the client.
//
// While the head waits for memory, what messages behind it free can go ahead, unless one before them names it.
//
// A pure state machine. Ownership: owned by Client; owns the messages. Threads: none inside; the owner serialises
// calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_CLIENT_STREAM_H_
#define PTPATHWAYS_CONTROLLER_CLIENT_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/outbox.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

// Whether a message was passed on or must wait at the head of its client's stream.
enum class Outcome : uint8_t { kHandled, kMustWait };
// What the head of a stream waits for.
enum class Wait : uint8_t { kNothing, kCompile, kPlan, kMemory, kTurn, kFetches };

class ClientStream {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  // The buffers that stay in a program's places, or null.
  using PlacesOf = std::function<const std::vector<uint64_t>*(uint64_t program)>;

  // Keeps a message behind those that wait. RESOURCE_EXHAUSTED when there are too many now.
  Status Push(Message& message);
  bool empty() const { return held_.empty(); }
  size_t size() const { return held_.size(); }
  size_t runs() const;
  // The head, until Pop.
  Message Front();
  void Pop();

  // Notes what the head, which is about to be kept or is, waits for: a function, program, run, buffer or host.
  Outcome MustWait(Wait wait, uint64_t what);
  Wait wait() const { return wait_; }
  uint64_t wait_for() const { return wait_for_; }

  // The run at the head may go: its turn has come.
  void Grant(uint64_t run) { granted_run_ = run; }
  bool is_granted(uint64_t run) const { return granted_run_ == run; }
  void Dispatched() { granted_run_ = 0; }

  // What can be freed ahead of a head that waits for memory; it is freed no more when its message's turn comes.
  std::vector<wire::Free> TakeFrees(const PlacesOf& places_of);

 private:
  struct Held {
    wire::Head head;  // body borrowed from `frame`
    std::string frame;
    std::vector<Payload> payloads;
    uint64_t arrival = 0;
    uint64_t bytes = 0;  // when it came
  };
  // Notes the buffers that a message names. What does not decode names none: it is refused when its turn comes.
  void Name(const Held& item, const PlacesOf& places_of);
  template <typename Run>
  void NameRun(const Run& run);

  std::deque<std::unique_ptr<Held>> held_;
  uint64_t held_bytes_ = 0;
  Wait wait_ = Wait::kNothing;
  uint64_t wait_for_ = 0;
  uint64_t granted_run_ = 0;
  std::unordered_set<uint64_t> named_;  // buffers that the messages up to held_[named_count_] name
  uint64_t named_head_ = 0;             // the arrival of the head at that time
  size_t named_count_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLIENT_STREAM_H_
