// Parts: what a session is made of, in the order in which the parts use each other.
//
// Ownership: owned by the session. Threads: see each part; any for what is here.
// Locks:     the core's, which all parts share: a loss ends what is under way in all of them at one moment.
#ifndef PTPATHWAYS_CLIENT_PARTS_H_
#define PTPATHWAYS_CLIENT_PARTS_H_

#include <utility>
#include <vector>

#include "csrc/client/buffers.h"
#include "csrc/client/core.h"
#include "csrc/client/files.h"
#include "csrc/client/functions.h"
#include "csrc/client/incoming.h"
#include "csrc/client/membership.h"
#include "csrc/client/pending.h"
#include "csrc/client/program_runs.h"
#include "csrc/client/programs.h"
#include "csrc/client/queries.h"
#include "csrc/client/runs.h"
#include "csrc/client/slices.h"
#include "csrc/client/transfers.h"
#include "csrc/client/waiting.h"

namespace pathways::client {

struct Parts {
  Parts(SessionOptions options, Session* session) : core(std::move(options), session) {}

  // Ends everything under way that the loss covers.
  void End(const Loss& loss);
  // What has been sent and not been answered, the oldest first.
  std::vector<PendingItem> Pending() const;

  Core core;
  Waiting waiting;
  Functions functions{core, waiting};
  Runs runs{core, functions};
  Transfers transfers{core};
  Buffers buffers{core, transfers};
  Programs programs{core, functions};
  ProgramRuns program_runs{core, runs};
  Queries queries{core, functions};
  Files files{core};
  Slices slices{core};
  Membership membership{core, [this](const Loss& loss) { End(loss); }};
  Incoming incoming{*this};
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_PARTS_H_
