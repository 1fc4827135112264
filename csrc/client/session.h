// Session: a client's view of the cluster. Mints handles, submits work, and never waits to do so.
//
// A session talks to a controller through a Link (in the same process, or ZeroMQ) and to workers' data endpoints for
// bulk bytes. Everything above it (the PJRT plugin, the Python bindings) is built from this class and its parts, which
// do the work: see the header of each.
//
// Ownership: created by Connect, shared by the plugin's client and Python; handles keep it alive. Owns its parts.
// Threads:   every public method, also of the parts, may be called from any thread; none takes the GIL. Events are set
//            on the session's receive thread or, with an embedded controller, on whichever thread delivered the
//            message.
// Locks:     one, shared by the parts (core.h); never held while a callback runs.
#ifndef PTPATHWAYS_CLIENT_SESSION_H_
#define PTPATHWAYS_CLIENT_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/parts.h"

namespace pathways::client {

struct TransferStats {
  uint64_t bytes_uploaded = 0;  // client to workers
  uint64_t bytes_fetched = 0;   // workers to client
  uint64_t runs = 0;
  uint64_t copies = 0;  // worker to worker, none of whose bytes the client sees
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Waits for the controller's answer. `still_wanted` is asked every now and then meanwhile; an error gives up.
  static Result<std::shared_ptr<Session>> Connect(const SessionOptions& options,
                                                  const std::function<Status()>& still_wanted = {});
  ~Session();

  const std::string& cluster() const { return parts_.core.cluster; }
  uint32_t client_index() const { return parts_.core.client_index; }
  // A snapshot; hosts never move, new ones are appended, lost ones have alive = 0.
  std::vector<wire::HostDescription> hosts() const;
  uint32_t device_count() const;

  Functions& functions() { return parts_.functions; }
  Buffers& buffers() { return parts_.buffers; }
  Transfers& transfers() { return parts_.transfers; }
  Files& files() { return parts_.files; }
  Runs& runs() { return parts_.runs; }
  Programs& programs() { return parts_.programs; }
  ProgramRuns& program_runs() { return parts_.program_runs; }
  Slices& slices() { return parts_.slices; }
  Queries& queries() { return parts_.queries; }
  Waiting& waiting() { return parts_.waiting; }

  TransferStats transfer_stats() const;
  // Names of those that the controller has heard nothing of for a while.
  std::vector<std::string> SilentHosts() const;
  // To which hosts this client is sending just now, and how many values.
  std::vector<std::pair<std::string, uint64_t>> Sends() const;
  // What has been sent and not been answered, the oldest first.
  std::vector<PendingItem> Pending() const { return parts_.Pending(); }

  // Says goodbye, fails what is pending with `reason`, stops threads. Idempotent.
  void Close(const std::string& reason);
  bool closed() const { return parts_.core.closed; }
  // What users of handles hear after the session was closed.
  std::string LeftText() const { return parts_.core.LeftText(); }

  // The process's current session, which the PJRT plugin's Client_Create attaches to.
  static void SetCurrent(std::shared_ptr<Session> session);
  static std::shared_ptr<Session> Current();

 private:
  explicit Session(const SessionOptions& options) : parts_(options, this) {}

  Parts parts_;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_SESSION_H_
