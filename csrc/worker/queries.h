// Queries: questions about this host, its functions and its programs.
//
// Ownership: owned by the engine; borrows what it asks. Threads: the engine's. Locks: none.
#ifndef PTPATHWAYS_WORKER_QUERIES_H_
#define PTPATHWAYS_WORKER_QUERIES_H_

#include <string>

#include "csrc/pjrt/executable.h"
#include "csrc/worker/activity.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/programs.h"

namespace pathways::worker {

class Queries {
 public:
  Queries(const HostContext& context, const Functions& functions, const Programs& programs, const Activity& activity)
      : context_(context), functions_(functions), programs_(programs), activity_(activity) {}

  // A question about a function that is being compiled waits for that.
  void Answer(const wire::Query& query) const;

 private:
  // Each fills in what is known, or gives why it is not.
  Status Fill(const wire::Query& query, wire::Reply* reply, std::string* payload) const;
  Status FillMemory(uint32_t device, wire::Reply* reply) const;
  Status FillCompiled(wire::QueryKind kind, const pjrt::Executable& executable, wire::Reply* reply,
                      std::string* payload) const;

  const HostContext& context_;
  const Functions& functions_;
  const Programs& programs_;
  const Activity& activity_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_QUERIES_H_
