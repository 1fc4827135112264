#include "csrc/worker/device_pinner.h"

#include <atomic>

#include "csrc/worker/note.h"

namespace pathways::worker {
namespace {

class DevicePinner : public Pinner {
 public:
  explicit DevicePinner(std::shared_ptr<pjrt::Client> client) : client_(std::move(client)) {}

  bool Pin(void* data, size_t size) override {
    const Status status = client_->DmaMap(data, size);
    if (!status.ok() && !told_.exchange(true)) {
      Note("copies to and from the devices are slower than they could be, since the plugin could not pin memory: " +
           status.ToString());
    }
    return status.ok();
  }

  void Unpin(void* data) override {
    if (const Status status = client_->DmaUnmap(data); !status.ok()) {
      Note("memory stays pinned: " + status.ToString());
    }
  }

 private:
  const std::shared_ptr<pjrt::Client> client_;
  std::atomic<bool> told_{false};
};

}  // namespace

std::shared_ptr<Pinner> PinnerOf(const std::shared_ptr<pjrt::Client>& client) {
  if (client->platform_name() == "cpu" || !client->CanDmaMap()) return nullptr;
  return std::make_shared<DevicePinner>(client);
}

}  // namespace pathways::worker
