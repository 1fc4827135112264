// Clients: the sessions of those who are members: who may become one, what each has registered, and what of it waits.
//
// Ownership: owned by ClusterState, for its other parts to read and change; owns the clients. Threads: none inside;
// the owner serialises calls. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_CLIENTS_H_
#define PTPATHWAYS_CONTROLLER_CLIENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/client_stream.h"
#include "csrc/controller/failed_outputs.h"
#include "csrc/controller/fetch_round.h"
#include "csrc/controller/outbox.h"
#include "csrc/controller/works.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/identity.h"

namespace pathways::controller {

struct Client {
  uint32_t index = 0;
  Connection connection;
  std::string name;
  uint64_t pid = 0;
  uint64_t joined_ms = 0;
  uint64_t session = 0;
  std::unordered_map<uint64_t, FunctionState> functions = {};
  std::unordered_map<uint64_t, ProgramState> programs = {};
  ClientStream stream = {};
  std::unordered_map<uint32_t, FetchRound> fetches = {};  // by host
  FailedOutputs failed_outputs = {};

  wire::Identity identity() const { return {"c/" + std::to_string(index), session}; }
  // For the log.
  std::string Describe() const;
  // "function 'f'", as far as it is still there.
  std::string DescribeWork(uint64_t work) const;
  // PERMISSION_DENIED unless the id is one of this client's.
  Status CheckOwns(uint64_t id, const char* what) const;
};

class Clients {
 public:
  // Whether one more may join.
  Status Check(const wire::Hello& hello) const;
  // A number is given again after all others, when nothing of its last client is under way any more.
  Client& Add(const wire::Hello& hello, const Connection& from, uint64_t session, uint64_t now_ms);
  void Remove(uint32_t index) { clients_.erase(index); }

  Client& at(uint32_t index) { return clients_.at(index); }
  const Client& at(uint32_t index) const { return clients_.at(index); }
  // Null when it has left.
  Client* Find(uint32_t index);
  const Client* Find(uint32_t index) const { return const_cast<Clients*>(this)->Find(index); }
  // The client whose id this is, null when it has left.
  Client* OwnerOf(uint64_t id) { return Find(static_cast<uint32_t>(wire::ClientOf(id))); }
  // By number: (number, client).
  auto begin() { return clients_.begin(); }
  auto end() { return clients_.end(); }
  auto begin() const { return clients_.begin(); }
  auto end() const { return clients_.end(); }
  // Those that are members now, for loops in which one may leave.
  std::vector<uint32_t> Indices() const;

  // A message for the client whose id this is; nothing when it has left.
  void Tell(uint64_t id, std::string frame, std::vector<Payload> payloads, Outbox& outbox);

 private:
  std::map<uint32_t, Client> clients_;
  uint32_t latest_ = 0;
};

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_CLIENTS_H_
