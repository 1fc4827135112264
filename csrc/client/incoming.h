// Incoming: hands each message of the controller to the part it is for.
//
// Ownership: owned by the session; borrows all parts. Threads: whichever delivers. Locks: none of its own.
#ifndef PTPATHWAYS_CLIENT_INCOMING_H_
#define PTPATHWAYS_CLIENT_INCOMING_H_

#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/client/link.h"

namespace pathways::client {

struct Parts;

class Incoming {
 public:
  explicit Incoming(Parts& parts) : parts_(parts) {}

  // A message of the controller. What is wrong with it is logged, or ends a join.
  void OnMessage(const std::string& frame, std::vector<Payload> payloads);

 private:
  Status Handle(const std::string& frame, std::vector<Payload> payloads);

  Parts& parts_;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_INCOMING_H_
