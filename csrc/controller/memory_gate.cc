#include "csrc/controller/memory_gate.h"

#include <algorithm>

#include "csrc/wire/plan_bodies.h"

namespace pathways::controller {

bool MemoryGate::IsLimited(const scheduler::GangShape& shape) const {
  return std::any_of(shape.parts.begin(), shape.parts.end(),
                     [this](const scheduler::GangPart& part) { return ledger_.limited(part.host); });
}

bool MemoryGate::AskForBuffer(uint32_t client, uint64_t id, uint64_t buffer, int64_t bytes, uint32_t device,
                              uint32_t others_here, Outbox& outbox) {
  const uint32_t host = hosts_.host_of(device);
  if (!ledger_.limited(host)) return true;
  request_.Clear();
  request_.id = id;
  request_.client = client;
  request_.hosts.push_back(host);
  request_.MakeOne(buffer, bytes, device, others_here);
  return Enter(outbox).may_go;
}

MemoryGate::Pass MemoryGate::Enter(Outbox& outbox) {
  switch (ledger_.Ask(request_, outbox.now_ms())) {
    case MemoryLedger::Answer::kFits:
      SendOrders(outbox);
      return {true, &request_};
    case MemoryLedger::Answer::kNever:
      return {true, nullptr};  // nothing was entered; its worker says why
    case MemoryLedger::Answer::kWait:
      break;
  }
  return {false, nullptr};
}

void MemoryGate::SendOrders(Outbox& outbox) {
  if (!ledger_.has_orders()) return;
  for (MemoryOrder& order : ledger_.TakeOrders()) {
    const Connection& to = hosts_[order.host].connection;
    if (order.restore) {
      outbox.Send(to, wire::Restore{std::move(order.buffers)});
    } else {
      outbox.Send(to, wire::Spill{std::move(order.buffers)});
    }
  }
}

}  // namespace pathways::controller
