// ExchangePlan: what one host does in one meeting: what goes to each other host, what comes, and what is made of it.
//
// Built from the operation and the operands of the members on this host alone; every host arrives at the same streams.
//
// Ownership: borrows the operands' memory; owns copies of inputs that would be overwritten too early.
// Threads:   none inside.
#ifndef PTPATHWAYS_COLLECTIVE_PLAN_H_
#define PTPATHWAYS_COLLECTIVE_PLAN_H_

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/layout.h"
#include "csrc/collective/stream.h"
#include "csrc/hlo/collective.h"

namespace pathways::collective {

// What goes to and comes from another host in round 0.
struct PeerPlan {
  uint32_t host = 0;
  uint32_t device = 0;          // stands for the host
  std::vector<Stream> sources;  // of one shape; reduced (or, being one, copied) into what is sent
  bool sends_inputs = false;    // instead of `sources`: ExchangePlan::inputs
  Share send;                   // of the stream
  Share receive;                // of the other host's stream to this one
  std::vector<Stream> targets;  // copying kinds: each gets a copy of what comes
};

struct ExchangePlan {
  hlo::Reduction reduction{};
  std::vector<PeerPlan> peers;  // other hosts, ascending
  size_t lower_hosts = 0;       // how many of them come before this host

  // Reducing kinds: what comes is not copied but reduced with `own`, in the order of hosts, and stored in `results`.
  bool reduces = false;
  std::vector<Stream> inputs;   // of the local members, of one shape
  std::vector<Stream> own;      // reduce-scatter: the parts of `inputs` that this host keeps; else empty: `inputs`
  std::vector<Stream> results;  // the first is computed, the others are copies of it
  Share reduced;                // what this host reduces, of the stream
  bool hold = false;          // round 0 sends what `results` overwrites: reduce a part only when all have been sent it
  bool gathers = false;       // round 1: `reduced` goes to all, and comes from all
  std::vector<Share> shares;  // with `gathers`: of each peer

  std::vector<std::pair<Stream, Stream>> copies;   // within this host, from and to
  std::vector<std::span<std::byte>> zeros;         // outputs that nobody sends to
  std::vector<std::unique_ptr<std::byte[]>> kept;  // private copies of inputs

  uint64_t BytesToSend() const;
  const std::vector<Stream>& Own() const { return own.empty() ? inputs : own; }
  const std::vector<Stream>& SourcesFor(const PeerPlan& peer) const {
    return peer.sends_inputs ? inputs : peer.sources;
  }
};

// One local member's operands.
struct LocalPart {
  uint32_t position = 0;  // in the group
  std::span<const hlo::CollectiveOperand> operands;
};

// `parts` are the local members of the layout, by position. INVALID_ARGUMENT: sizes that do not fit the operation;
// INTERNAL: the members' operands differ; UNIMPLEMENTED: a reduction without arithmetic. Fills an empty plan.
Status BuildPlan(const hlo::CollectiveOp& op, const Layout& layout, std::span<const LocalPart> parts,
                 ExchangePlan* plan);

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_PLAN_H_
