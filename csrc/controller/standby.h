// Standby: a process that goes on with a cluster when the process of its controller ends.
//
// The controller's decisions are a pure function of its inputs (core.h). The process that serves, a child of this one,
// writes each input to a ring of shared memory (Journal) before it acts on it; this process applies the same inputs to
// a core of its own, and sends nothing. When the child is killed, what it wrote is still in the ring: this process
// applies the rest, and is then what the child was, up to the last input of which anything can have been seen. It forks
// another child, which has a copy of that core and serves. Members' lines do the rest (transport/line.h): both ends
// send again what the other one has not taken.
//
// This process has one thread and no socket, so that it can be forked at any time. It is the older one, which the user
// started: who waits for it, or signals it, still does so after its child was replaced.
//
// Not taken over are: a child that exits by itself (told to stop, or it could not listen); one that is merely stopped;
// one that wrote more than this process could follow, or of which this process's core differs (by the digest of
// messages): then the journal ends, both say so, and the child goes on alone.
//
// Ownership: the ring belongs to both processes. Threads: Standby: one. Journal: its owner's lock guards it.
#ifndef PTPATHWAYS_CONTROLLER_STANDBY_H_
#define PTPATHWAYS_CONTROLLER_STANDBY_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/shared_ring.h"
#include "csrc/base/status.h"
#include "csrc/controller/core.h"
#include "csrc/controller/input.h"

namespace pathways::controller {

// The serving process's end.
class Journal {
 public:
  // `standby`: the process that reads it, the parent of this one.
  Journal(std::unique_ptr<SharedRing> ring, pid_t standby) : ring_(std::move(ring)), standby_(standby) {}

  // False: nobody follows any more. why_lost says why.
  bool Write(const Input& input);
  // The reader is to come as far as the last input. False as for Write.
  bool Flush();
  const std::string& why_lost() const { return why_lost_; }
  pid_t standby() const { return standby_; }

 private:
  const std::unique_ptr<SharedRing> ring_;
  const pid_t standby_;
  RecordOf record_;
  std::string why_lost_;
};

class Standby {
 public:
  struct End {
    int code = 0;         // with which the child exited
    int signal = 0;       // that ended it; 0: it exited by itself
    std::string why_not;  // it cannot be taken over; empty: it can
  };

  // `listens`: where, with free ports not chosen yet.
  Standby(ClusterOptions options, std::vector<std::string> listens)
      : core_(std::make_unique<Core>(std::move(options))), endpoints_(std::move(listens)) {}

  // To be called before each fork.
  Status Prepare();
  // In the child: what a controller is to be started with, once.
  std::unique_ptr<Core> TakeCore() { return std::move(core_); }
  std::unique_ptr<Journal> TakeJournal();
  // In the parent: applies what the child writes until it ends, and passes the signals SIGINT, SIGTERM, SIGHUP and
  // SIGUSR1 on to it; these and SIGCHLD must be blocked.
  Result<End> Follow(pid_t child);

  // As Core::token; empty also when this process has left.
  std::string token() const { return core_ == nullptr ? "" : core_->token(); }
  // Where the child listens, or is to listen.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

 private:
  // Applies what there is, so much at a time. False: there is nothing left.
  bool Drain();
  void Apply(Input input);
  void Leave(std::string why);

  std::unique_ptr<Core> core_;  // null once it has left
  std::vector<std::string> endpoints_;
  std::unique_ptr<SharedRing> ring_;
  pid_t parent_ = 0;
  bool served_ = false;  // the child has begun to serve
  bool ending_ = false;  // it was told to stop
  std::string record_;
  std::string why_left_;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_STANDBY_H_
