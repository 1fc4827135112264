#include "csrc/sim/host.h"

#include <string>
#include <type_traits>
#include <utility>

namespace pathways::sim {

Host::Host(World* world, HostSpec spec, Reply reply)
    : site_(*world, std::move(spec), std::move(reply)),
      buffers_(site_),
      programs_(site_),
      runs_(site_, buffers_, programs_) {}

void Host::Join() {
  wire::Hello hello;
  hello.role = wire::Role::kWorker;
  hello.build = site_.spec.build;
  hello.name = site_.spec.name;
  hello.machine = "simulated";
  hello.platform = "sim";
  hello.platform_version = "simulated devices, no values";
  hello.island = site_.spec.island;
  for (uint32_t d = 0; d < site_.spec.devices; ++d) {
    hello.devices.push_back({d, "simulated", site_.spec.memory_limit_bytes});
  }
  // No data endpoint: there is nothing to upload to, and a fetch is answered with a size only.
  site_.Send(hello);
}

void Host::Die() {
  site_.alive = false;
  programs_.Clear();
  buffers_.Clear();
  runs_.Clear();
}

void Host::OnMessage(std::string_view frame, const std::vector<Payload>& payloads) {
  if (!site_.alive) return;
  Status status = [&]() -> Status {
    PW_ASSIGN_OR_RETURN(const wire::Head head, wire::DecodeHead(frame));
    return Handle(head, payloads);
  }();
  if (!status.ok()) last_refusal_ = site_.Here(status);
}

template <typename Body, typename Part>
Status Host::Give(const wire::Head& head, Part& part) {
  PW_ASSIGN_OR_RETURN(Body body, wire::Decode<Body>(head.body));
  if constexpr (std::is_void_v<decltype(part.On(std::move(body)))>) {
    part.On(std::move(body));
    return OkStatus();
  } else {
    return part.On(std::move(body));
  }
}

template <typename... Bodies, typename Part>
bool Host::Offer(const wire::Head& head, Part& part, Status& status) {
  return ((head.header.type == Bodies::kType && (status = Give<Bodies>(head, part), true)) || ...);
}

Status Host::Handle(const wire::Head& head, const std::vector<Payload>& payloads) {
  Status status;
  if (Offer<wire::RunProgram, wire::RunInPlace, wire::Run>(head, runs_, status) ||
      Offer<wire::Put, wire::Fetch, wire::Copy, wire::Expect>(head, buffers_, status) ||
      Offer<wire::Free, wire::Spill, wire::Restore>(head, buffers_, status) ||
      Offer<wire::RegisterPlan, wire::Unregister>(head, programs_, status) ||
      Offer<wire::Query, wire::OwnerGone, wire::HostLost, wire::Welcome, wire::Reject>(head, *this, status)) {
    return status;
  }
  switch (head.header.type) {
    case wire::Type::kRegister: {
      PW_ASSIGN_OR_RETURN(wire::Register request, wire::Decode<wire::Register>(head.body));
      return programs_.Register(std::move(request), payloads);
    }
    case wire::Type::kTopology:  // the others are known from the same process
    case wire::Type::kHeartbeat:
      return OkStatus();
    case wire::Type::kGoodbye:
      Die();
      return OkStatus();
    default:
      return InvalidArgument("a host does not take " + std::string(wire::TypeName(head.header.type)));
  }
}

Status Host::On(const wire::Welcome& welcome) {
  if (welcome.peer >= welcome.hosts.size()) return DataLoss("WELCOME does not describe this host");
  site_.index = welcome.peer;
  site_.first_device = welcome.hosts[site_.index].first_device;
  site_.joined = true;
  site_.world.AddHost(site_.index, site_.first_device, site_.spec.devices);
  return OkStatus();
}

Status Host::On(const wire::Reject& reject) { return reject.status.WithPrefix("the controller refused this host"); }

void Host::On(const wire::HostLost& lost) { site_.world.LoseHost(lost.host, Unavailable(lost.reason)); }

void Host::On(const wire::OwnerGone& gone) {
  buffers_.DropClient(gone.client);
  programs_.DropClient(gone.client);
  site_.world.network.DropClient(gone.client, Cancelled("client " + std::to_string(gone.client) + " is gone"));
}

void Host::On(const wire::Query& query) {
  wire::Reply reply;
  reply.request = query.request;
  std::vector<Payload> payloads;
  if (query.kind == wire::QueryKind::kMemoryStats) {
    buffers_.AnswerMemory(query.device, reply);
  } else if (query.kind != wire::QueryKind::kActivity) {  // nobody waits long for what takes simulated time alone
    programs_.Answer(query, reply, payloads);
  }
  site_.Send(reply, std::move(payloads));
}

}  // namespace pathways::sim
