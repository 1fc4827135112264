#include "csrc/worker/host_context.h"

namespace pathways::worker {

void HostContext::SetDevices(std::shared_ptr<pjrt::Client> client, std::vector<int64_t> limits) {
  client_ = std::move(client);
  device_count_ = limits.size();
  store_ = std::make_unique<store::ObjectStore>(std::move(limits));
}

void HostContext::Joined(std::string cluster, uint32_t number, uint32_t first_device) {
  cluster_ = std::move(cluster);
  number_ = number;
  first_device_ = first_device;
}

Result<size_t> HostContext::LocalDevice(uint32_t device) const {
  if (device < first_device_ || device - first_device_ >= device_count_) {
    return InvalidArgument("expected a device of this host (" + std::to_string(first_device_) + " to " +
                           std::to_string(first_device_ + device_count_ - 1) + "), got " + std::to_string(device));
  }
  return device - first_device_;
}

bool HostContext::MemoryIsBounded() const {
  for (size_t device = 0; device < device_count_; ++device) {
    if (store_->account().limit(device) > 0) return true;
  }
  return false;
}

void HostContext::SendHead(std::string head) const {
  transport::Frames frames;
  frames.emplace_back(std::move(head));
  if (Status status = outbox_.Send(std::move(frames)); !status.ok() && !outbox_.ending()) {
    Log("cannot reach the controller: " + status.ToString());
  }
}

Status HostContext::SendReply(const wire::Reply& reply, std::string payload) const {
  transport::Frames frames;
  frames.emplace_back(wire::Encode(reply));
  frames.emplace_back(std::move(payload));
  return outbox_.Send(std::move(frames));
}

void HostContext::Report(const Status& sent) const {
  if (!sent.ok() && !outbox_.ending()) Log(sent.ToString());
}

void HostContext::Log(const std::string& line, logging::Level level) const {
  logging::Write(level, "worker " + name_, line);
}

void HostContext::Count() {
  live_buffers_ = store_->size();
  live_bytes_ = store_->account().total_used();
}

}  // namespace pathways::worker
