#include "csrc/worker/staging.h"

#include <unistd.h>

#include <algorithm>

namespace pathways::worker {

int64_t StagingLimit(const HostContext& context) {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 10 * 9;
  if (!context.is_cpu()) return memory / 2;
  // CPU devices take the same memory: what their limits leave over.
  int64_t devices = 0;
  for (size_t d = 0; d < context.device_count(); ++d) devices += context.store().account().limit(d);
  return std::max<int64_t>(memory - devices, 0) / 2;
}

Result<pjrt::Buffer> StagedToDevice(pjrt::Client& client, dataplane::DataPlane& data,
                                    std::shared_ptr<const HostMemory> bytes, const TensorType& type, size_t device) {
  if (bytes->size() == 0) return client.BufferFromHost("", type, static_cast<int>(device));
  PW_ASSIGN_OR_RETURN(auto unique, client.CreateAsyncBuffer(type, static_cast<int>(device)));
  std::shared_ptr<pjrt::AsyncBuffer> async = std::move(unique);
  PW_ASSIGN_OR_RETURN(pjrt::Buffer buffer, async->TakeBuffer());
  data.Post([&data, async, bytes = std::move(bytes)] {
    async->Transfer(bytes->data(), bytes->size(), 0, true, [&data, async, bytes](const Status&) {
      data.Post([async] {});  // let go outside the callback, which the manager waits for
    });
  });
  return buffer;
}

}  // namespace pathways::worker
