// ClusterState: virtual slices. The binding itself is ResourceManager's.
#include "csrc/controller/cluster_state.h"

namespace pathways::controller {

Status ClusterState::HandleRequestSlice(uint32_t client, Message& message, Outbox& outbox) {
  PW_ASSIGN_OR_RETURN(wire::RequestSlice request, wire::Decode<wire::RequestSlice>(message.head.body));
  PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(request.request, "request"));
  wire::SliceGranted answer;
  answer.request = request.request;
  Result<ResourceManager::Slice> slice = resources_.Request(client, request);
  if (slice.ok()) {
    answer.slice = slice->id;
    answer.devices = std::move(slice->devices);
  } else {
    answer.status = slice.status();
  }
  outbox.Send(clients_.at(client).connection, answer);
  return OkStatus();
}

Status ClusterState::HandleReleaseSlice(uint32_t client, Message& message) {
  PW_ASSIGN_OR_RETURN(wire::ReleaseSlice request, wire::Decode<wire::ReleaseSlice>(message.head.body));
  for (const uint64_t slice : request.slices) PW_RETURN_IF_ERROR(clients_.at(client).CheckOwns(slice, "slice"));
  resources_.Release(request.slices);
  return OkStatus();
}

}  // namespace pathways::controller
