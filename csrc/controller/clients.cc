#include "csrc/controller/clients.h"

namespace pathways::controller {
namespace {

// Shares outside these bounds would be lost in the rounding of the others'.
constexpr double kMinWeight = 1e-3, kMaxWeight = 1e6;

}  // namespace

std::string Client::Describe() const {
  return "client " + Quoted(name) + " (client " + std::to_string(index) + ", pid " + std::to_string(pid) + ")";
}

std::string Client::DescribeWork(uint64_t work) const {
  if (auto function = functions.find(work); function != functions.end()) {
    return "function " + Quoted(function->second.name);
  }
  if (auto program = programs.find(work); program != programs.end()) return "program " + Quoted(program->second.name);
  return "a computation";
}

Status Client::CheckOwns(uint64_t id, const char* what) const {
  if (wire::ClientOf(id) == index) return OkStatus();
  return Status(Code::kPermissionDenied, std::string("expected a ") + what + " of client " + std::to_string(index) +
                                             ", got one of client " + std::to_string(wire::ClientOf(id)));
}

Status Clients::Check(const wire::Hello& hello) const {
  if (clients_.size() >= wire::kMaxClients) {
    return ResourceExhausted("this controller serves at most " + std::to_string(wire::kMaxClients) +
                             " clients at a time; end some");
  }
  if (hello.weight >= kMinWeight && hello.weight <= kMaxWeight) return OkStatus();
  return InvalidArgument("expected a client's weight from " + std::to_string(kMinWeight) + " to " +
                         std::to_string(kMaxWeight) + ", got " + std::to_string(hello.weight));
}

Client& Clients::Add(const wire::Hello& hello, const Connection& from, uint64_t session, uint64_t now_ms) {
  do {
    latest_ = latest_ % wire::kMaxClients + 1;
  } while (clients_.contains(latest_));
  Client& client = clients_[latest_];
  client.index = latest_;
  client.connection = from;
  client.name = hello.name;
  client.pid = hello.pid;
  client.joined_ms = now_ms;
  client.session = session;
  return client;
}

Client* Clients::Find(uint32_t index) {
  auto found = clients_.find(index);
  return found == clients_.end() ? nullptr : &found->second;
}

std::vector<uint32_t> Clients::Indices() const {
  std::vector<uint32_t> indices;
  indices.reserve(clients_.size());
  for (const auto& [index, client] : clients_) indices.push_back(index);
  return indices;
}

void Clients::Tell(uint64_t id, std::string frame, std::vector<Payload> payloads, Outbox& outbox) {
  if (const Client* client = OwnerOf(id)) outbox.Pass(client->connection, std::move(frame), std::move(payloads));
}

}  // namespace pathways::controller
