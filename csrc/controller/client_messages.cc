#include "csrc/controller/client_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace pathways::controller {
using wire::Type;

Status ClientMessages::Take(uint32_t client, Message& message, Outbox& outbox) {
  Client& state = of_.clients.at(client);
  // Compiles, questions and input pipelines need no order among runs; all else keeps its place behind what waits.
  const Type type = message.head.header.type;
  const bool overtakes = type == Type::kRegister || type == Type::kRegisterPlan || type == Type::kQuery ||
                         type == Type::kRequestSlice || type == Type::kReleaseSlice || type == Type::kOpenPipeline ||
                         type == Type::kFeed || type == Type::kClosePipeline || type == Type::kTransferFailed;
  message.arrival = ++arrivals_;
  if (overtakes || state.stream.empty()) {
    Result<Outcome> outcome = Handle(client, message, outbox);
    if (!outcome.ok()) {
      outbox.Note("client " + state.name + ": " + outcome.status().ToString());
      outbox.Send(state.connection, wire::Reject{outcome.status()});
      return OkStatus();
    }
    if (*outcome == Outcome::kHandled) return OkStatus();
  }
  if (Status room = state.stream.Push(message); !room.ok()) {
    outbox.Send(state.connection, wire::Reject{room});
    return room;
  }
  FreeBehind(state, outbox);
  return OkStatus();
}

void ClientMessages::Release(uint32_t index, Outbox& outbox) {
  Client* client = of_.clients.Find(index);
  if (client == nullptr) return;
  ClientStream& stream = client->stream;
  while (!stream.empty()) {
    Message message = stream.Front();
    Result<Outcome> outcome = Handle(index, message, outbox);
    if (outcome.ok() && *outcome == Outcome::kMustWait) return FreeBehind(*client, outbox);
    if (!outcome.ok()) outbox.Send(client->connection, wire::Reject{outcome.status()});
    stream.Pop();
    of_.memory.Cancel(index);  // in case it failed before it could go
  }
}

void ClientMessages::ReleaseFetches(uint32_t host, Outbox& outbox) {
  std::vector<uint32_t> waiting;
  for (const auto& [index, client] : of_.clients) {
    if (client.stream.wait() == Wait::kFetches && client.stream.wait_for() == host) waiting.push_back(index);
  }
  if (waiting.empty()) return;
  std::rotate(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(++fetch_turn_ % waiting.size()), waiting.end());
  for (const uint32_t client : waiting) Release(client, outbox);
}

void ClientMessages::FreeBehind(Client& owner, Outbox& outbox) {
  const auto places_of = [&owner](uint64_t id) -> const std::vector<uint64_t>* {
    auto program = owner.programs.find(id);
    return program == owner.programs.end() ? nullptr : &program->second.places.buffers();
  };
  for (const wire::Free& free : owner.stream.TakeFrees(places_of)) {
    // As if it had come before all that waits. A refusal then is the client's mistake, and told as such.
    std::vector<Payload> none;
    std::string frame = wire::Encode(free);
    const wire::Head head = *wire::DecodeHead(frame);
    Message message{head, frame, none, 0};
    if (auto outcome = Handle(owner.index, message, outbox); !outcome.ok()) {
      outbox.Send(owner.connection, wire::Reject{outcome.status()});
    }
  }
}

void ClientMessages::GrantTurns(Outbox& outbox) {
  for (;;) {
    if (std::optional<scheduler::GangScheduler::Grant> grant = of_.scheduler.TakeGrant(outbox.now_ms())) {
      of_.clients.at(grant->client).stream.Grant(grant->run);
      Release(grant->client, outbox);
    } else if (std::optional<uint32_t> client = of_.memory.TakeReady()) {
      Release(*client, outbox);
    } else {
      return;
    }
  }
}

Result<Outcome> ClientMessages::On(Client& owner, const wire::RequestSlice& request, Message&, Outbox& outbox) {
  PW_RETURN_IF_ERROR(owner.CheckOwns(request.request, "request"));
  wire::SliceGranted answer;
  answer.request = request.request;
  Result<ResourceManager::Slice> slice = of_.resources.Request(owner.index, request);
  if (slice.ok()) {
    answer.slice = slice->id;
    answer.devices = std::move(slice->devices);
  } else {
    answer.status = slice.status();
  }
  outbox.Send(owner.connection, answer);
  return Outcome::kHandled;
}

Result<Outcome> ClientMessages::On(Client& owner, const wire::ReleaseSlice& request, Message&, Outbox&) {
  for (const uint64_t slice : request.slices) PW_RETURN_IF_ERROR(owner.CheckOwns(slice, "slice"));
  of_.resources.Release(request.slices);
  return Outcome::kHandled;
}

Result<Outcome> ClientMessages::On(Client& owner, const wire::Query& query, Message& message, Outbox& outbox) {
  if (query.kind != wire::QueryKind::kStatus) return of_.forwarding.Take(owner, query, message, outbox);
  PW_RETURN_IF_ERROR(owner.CheckOwns(query.request, "request"));
  wire::Reply reply;
  reply.request = query.request;
  reply.format = "json";
  outbox.Pass(owner.connection, wire::Encode(reply), {std::make_shared<const std::string>(status_(outbox.now_ms()))});
  return Outcome::kHandled;
}

// --- which part takes what

template <typename Body>
Result<Outcome> ClientMessages::Call(ClientMessages& self, Client& owner, Message& message, Outbox& outbox) {
  if constexpr (std::is_same_v<Body, wire::Run>) {
    wire::Run run = std::move(self.spare_run_);
    PW_RETURN_IF_ERROR(wire::DecodeInto(message.head.body, run));
    Result<Outcome> outcome = self.of_.runs.Take(owner, run, message, outbox);
    self.spare_run_ = std::move(run);
    return outcome;
  }
  PW_ASSIGN_OR_RETURN(const Body body, wire::Decode<Body>(message.head.body));
  if constexpr (wire::IsRun(Body::kType)) {
    return self.of_.runs.Take(owner, body, message, outbox);
  } else if constexpr (requires { self.of_.registry.Take(owner, body, message, outbox); }) {
    PW_RETURN_IF_ERROR(self.of_.registry.Take(owner, body, message, outbox));
    return Outcome::kHandled;
  } else if constexpr (requires { self.On(owner, body, message, outbox); }) {
    return self.On(owner, body, message, outbox);
  } else {
    return self.of_.forwarding.Take(owner, body, message, outbox);
  }
}

template <typename... Bodies>
constexpr auto ClientMessages::TableOf() {
  std::array<Handler, 64> handlers{};
  ((handlers[static_cast<size_t>(Bodies::kType)] = &Call<Bodies>), ...);
  return handlers;
}

Result<Outcome> ClientMessages::Handle(uint32_t client, Message& message, Outbox& outbox) {
  static constexpr auto kHandlers =
      TableOf<wire::Run, wire::RunProgram, wire::RunInPlace, wire::Register, wire::RegisterPlan, wire::Unregister,
              wire::Put, wire::Fetch, wire::Free, wire::Copy, wire::Save, wire::Load, wire::TransferFailed,
              wire::OpenPipeline, wire::Feed, wire::ClosePipeline, wire::Query, wire::RequestSlice,
              wire::ReleaseSlice>();
  const Type type = message.head.header.type;
  if (!wire::IsRun(type)) of_.runs.LetGo(client, outbox);
  const size_t number = static_cast<size_t>(type);
  if (number >= kHandlers.size() || kHandlers[number] == nullptr) {
    return InvalidArgument("a client may not send " + std::string(wire::TypeName(type)));
  }
  return kHandlers[number](*this, of_.clients.at(client), message, outbox);
}

}  // namespace pathways::controller
