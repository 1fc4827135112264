#include "csrc/client/incoming.h"

#include <array>
#include <type_traits>
#include <utility>

#include "csrc/client/parts.h"
#include "csrc/wire/message.h"

namespace pathways::client {
namespace {

template <typename Function>
struct BodyOf;
template <typename Part, typename Return, typename First, typename... Rest>
struct BodyOf<Return (Part::*)(First, Rest...)> {
  using Body = std::remove_cvref_t<First>;
};

// A row of the table: messages whose body is the first argument of kHandler go to the part kPart. A handler takes what
// else came with the body if it needs that, and returns a status if it can refuse.
template <auto kPart, auto kHandler>
struct Route {
  using Body = typename BodyOf<decltype(kHandler)>::Body;

  static Status Take(Parts& parts, std::string_view bytes, const Received& received) {
    PW_ASSIGN_OR_RETURN(Body body, wire::Decode<Body>(bytes));
    const auto call = [&] {
      auto& part = parts.*kPart;
      if constexpr (std::is_invocable_v<decltype(kHandler), decltype(part), Body, const Received&>) {
        return (part.*kHandler)(std::move(body), received);
      } else {
        return (part.*kHandler)(std::move(body));
      }
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return OkStatus();
    } else {
      return call();
    }
  }
};

using Handler = Status (*)(Parts& parts, std::string_view bytes, const Received& received);

template <typename... Routes>
constexpr auto TableOf() {
  std::array<Handler, 64> handlers{};
  ((handlers[static_cast<size_t>(Routes::Body::kType)] = &Routes::Take), ...);
  return handlers;
}

constexpr auto kHandlers =
    TableOf<Route<&Parts::runs, &Runs::OnDone>, Route<&Parts::transfers, &Transfers::OnFetched>,
            Route<&Parts::functions, &Functions::OnRegistered>, Route<&Parts::programs, &Programs::OnPlanReady>,
            Route<&Parts::slices, &Slices::OnGranted>, Route<&Parts::files, &Files::OnStored>,
            Route<&Parts::queries, &Queries::OnReply>, Route<&Parts::buffers, &Buffers::OnFailed>,
            Route<&Parts::membership, &Membership::OnHostLost>, Route<&Parts::membership, &Membership::OnTopology>,
            Route<&Parts::membership, &Membership::OnWelcome>, Route<&Parts::membership, &Membership::OnReject>,
            Route<&Parts::membership, &Membership::OnGoodbye>, Route<&Parts::membership, &Membership::OnRotate>>();

}  // namespace

void Incoming::OnMessage(const std::string& frame, std::vector<Payload> payloads) {
  const InCallback in_callback;
  if (const Status status = Handle(frame, std::move(payloads)); !status.ok()) parts_.membership.Refused(status);
}

Status Incoming::Handle(const std::string& frame, std::vector<Payload> payloads) {
  PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frame));
  const wire::Type type = head.header.type;
  if (type == wire::Type::kHeartbeat) return OkStatus();
  const size_t number = static_cast<size_t>(type);
  if (number >= kHandlers.size() || kHandlers[number] == nullptr) {
    return InvalidArgument("a client does not take " + std::string(wire::TypeName(type)));
  }
  return kHandlers[number](parts_, head.body, {head.header.sequence, std::move(payloads)});
}

}  // namespace pathways::client
