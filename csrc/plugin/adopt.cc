#include "csrc/plugin/adopt.h"

#include <string>
#include <utility>
#include <vector>

#include "csrc/plugin/buffer.h"
#include "csrc/plugin/client.h"
#include "csrc/plugin/value.h"

namespace pathways::plugin {

Result<uint64_t> Transfer(uint64_t token, int64_t device_id) {
  const std::shared_ptr<Value> value = FindToken(token);
  if (value == nullptr) {
    return NotFound("token " + std::to_string(token) + " names no live buffer; it was deleted, donated or never given");
  }
  PJRT_Device* const device = value->client()->FindDevice(device_id);
  if (device == nullptr) {
    return InvalidArgument("expected a device id below " + std::to_string(value->client()->devices().size()) +
                           ", got " + std::to_string(device_id));
  }
  std::shared_ptr<Value> result = value;  // already there: the same value, which nobody may donate now
  if (device != value->device()) {
    PW_ASSIGN_OR_RETURN(result, CopyValue(value, device));
  }
  ClaimToken(result);
  return result->token();
}

Status AdoptNextUploads(std::span<const uint64_t> tokens) {
  SetNextUploads({});
  std::vector<std::shared_ptr<Value>> values;
  for (const uint64_t token : tokens) {
    std::shared_ptr<Value> value = ReleaseClaim(token);
    if (value == nullptr) {
      SetNextUploads(std::move(values));
      SetNextUploads({});  // drops the others' holds
      return NotFound("token " + std::to_string(token) + " owns nothing to adopt; it was adopted or released before");
    }
    values.push_back(std::move(value));
  }
  SetNextUploads(std::move(values));
  return OkStatus();
}

void ReleaseToken(uint64_t token) {
  if (const std::shared_ptr<Value> value = ReleaseClaim(token)) value->DropHolder();
}

}  // namespace pathways::plugin
