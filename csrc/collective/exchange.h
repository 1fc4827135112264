// Exchange: carries one ExchangePlan out over the lanes: a loop that moves whatever can move and sleeps when nothing
// can. It never waits for one lane while another could move.
//
// Ownership: borrows plan and lanes; lives on the stack of the thread that runs it.
// Threads:   Run on one thread; Missing on any.
#ifndef PTPATHWAYS_COLLECTIVE_EXCHANGE_H_
#define PTPATHWAYS_COLLECTIVE_EXCHANGE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/collective/gang.h"
#include "csrc/collective/lanes.h"
#include "csrc/collective/plan.h"

namespace pathways::collective {

// Where in the cluster's order an exchange takes place, and what may end it early.
struct ExchangeContext {
  const Gang* gang = nullptr;
  uint32_t number = 0;   // of the instruction
  uint32_t ordinal = 0;  // of the meeting in the launch
  uint32_t device = 0;   // of this host: it stands for the host
  std::chrono::milliseconds limit{300000};
  std::chrono::microseconds spin{20};
  const std::atomic<bool>* failed = nullptr;  // set by others: the gang has failed
  std::function<Status()> failure;            // and why
};

class Exchange {
 public:
  Exchange(const ExchangePlan& plan, Lanes& lanes, ExchangeContext context);

  // DEADLINE_EXCEEDED: nothing has come for the limit; names the hosts. ABORTED: a peer has left this collective.
  // INTERNAL: a peer is at another instruction, or has other sizes.
  Status Run();

  // The hosts that have not sent all that they should or not taken all that they get; filled when Run has to sleep.
  std::vector<uint32_t> Missing() const;
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  struct PeerState {
    const PeerPlan* plan = nullptr;
    Share share;  // of the peer, when results are gathered
    OutLane* out = nullptr;
    InLane* in = nullptr;
    uint64_t sent[2] = {0, 0};            // where the next chunk of each round begins
    uint64_t received[2] = {0, 0};        // up to where all has come
    const InLane::Chunk* head = nullptr;  // round 0 of a reduction: waits for those of the other peers
  };

  void CopyLocally();
  bool Done() const;
  bool SendsLeft(const PeerState& peer) const;
  bool ReceivesLeft(const PeerState& peer) const;
  // Each says whether something moved.
  Result<bool> Step();
  Result<bool> SendTo(PeerState& peer);
  Status SendChunk(PeerState& peer, uint32_t round, uint64_t end);
  Result<bool> ReceiveFrom(PeerState& peer);
  Result<bool> ReduceHeads();
  void ReduceRange(uint64_t begin, uint64_t size);
  // OK and true: the chunk is of this exchange; OK and false: a leftover.
  Result<bool> IsOurs(const PeerState& peer, const ChunkHeader& header) const;
  Status CheckChunk(const PeerState& peer, const ChunkHeader& header) const;
  void OpenLanes();
  void NoteMissing();
  std::string Where() const;

  const ExchangePlan& plan_;
  Lanes& lanes_;
  const ExchangeContext context_;
  std::vector<PeerState> peers_;
  std::vector<Term> terms_;  // of a reduction, in the order of hosts; those of peers are filled for each chunk
  uint64_t reduced_ = 0;     // up to where
  uint64_t bytes_sent_ = 0;

  mutable std::mutex mutex_;
  std::vector<uint32_t> missing_ PW_GUARDED_BY(mutex_);
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_EXCHANGE_H_
