#include "csrc/client/core.h"

#include "csrc/client/session.h"

namespace pathways::client {

std::shared_ptr<Session> Core::Keep() const { return session->shared_from_this(); }

Status Core::TooLong(const std::string& head) {
  return InvalidArgument("expected a message of at most " + std::to_string(wire::kMaxBodyBytes >> 20) + " MiB, got " +
                         std::string(wire::TypeName(wire::TypeOf(head))) + " of " + std::to_string(head.size()) +
                         " bytes: give it fewer arguments at a time");
}

void Core::SendReleases() {
  Releases::Batch batch;
  {
    std::lock_guard lock(mutex);
    if (closed) return;
    batch = releases.Take();
  }
  for (auto& [host, ids] : batch.buffers) (void)Send(wire::Free{host, std::move(ids)});
  if (!batch.gone.functions.empty() || !batch.gone.programs.empty()) (void)Send(batch.gone);
}

Status Core::CheckOpen() const {
  if (closed) return FailedPrecondition(LeftText());
  return controller_lost;
}

Status Core::CheckHost(uint32_t host) const {
  PW_RETURN_IF_ERROR(CheckOpen());
  return hosts.CheckAlive(host);
}

Result<uint32_t> Core::HostOf(uint32_t device) const {
  std::lock_guard lock(mutex);
  PW_RETURN_IF_ERROR(CheckOpen());
  return hosts.AliveOfDevice(device);
}

std::string Core::LeftText() const {
  return "it belongs to cluster '" + cluster +
         "', which this process has left; what was made there is gone, so make it anew after ptpathways.init()";
}

}  // namespace pathways::client
