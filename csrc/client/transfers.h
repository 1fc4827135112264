// Transfers: bulk bytes between this process and the hosts' data planes: uploads, with a bound on those that hosts have
// not taken, and fetches into memory of this process.
//
// Ownership: owned by the session; borrows the core, and each fetch's destination until its event is set.
// Threads:   any; the data thread brings bytes, and reports what hosts have taken.
// Locks:     the session's (core.h); never held while bytes are sent, or copied out of the data plane (fetches.h).
#ifndef PTPATHWAYS_CLIENT_TRANSFERS_H_
#define PTPATHWAYS_CLIENT_TRANSFERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/host_memory.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/client/core.h"
#include "csrc/client/fetches.h"
#include "csrc/client/logical_buffer.h"
#include "csrc/client/pending.h"
#include "csrc/client/upload_memory.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/wire/bodies.h"

namespace pathways::client {

class Transfers : public dataplane::DataSink {
 public:
  explicit Transfers(Core& core) : core_(core) {}

  // Writes the shard's bytes (dense row-major) to `destination`, which must live until the event is set.
  // `request`, if given, is filled before the event can be set, and names the fetch for GiveUp; 0: it is over.
  std::shared_ptr<Event> Fetch(const Shard& shard, void* destination, uint64_t size, uint64_t* request = nullptr);
  // Sets the fetch's event to `status` unless it is complete; once it is set, nothing writes to its destination.
  void GiveUp(uint64_t request, const Status& status);
  // Set when the shard's value exists on its device, with the root cause when it never will.
  std::shared_ptr<Event> Ready(const Shard& shard);

  // --- for Buffers
  std::shared_ptr<HostMemory> Copy(const void* bytes, size_t size) { return upload_memory_->Copy(bytes, size); }
  // Sends the bytes of transfer `key` to a host. Waits while too many bytes have not been taken.
  void Upload(uint64_t key, uint32_t host, const std::shared_ptr<HostMemory>& bytes);
  // The host is told that the bytes of `key` will not come.
  void FailUpload(uint64_t key, uint32_t host, const Status& status);
  // Counts bytes that went inside a message.
  void CountUpload(uint64_t bytes) { uploaded_ += bytes; }

  uint64_t uploaded() const { return uploaded_; }  // bytes so far
  uint64_t fetched() const { return fetched_; }
  Status OnFetched(const wire::Fetched& answer, const Received& received);
  void Fail(const Loss& loss, Endings& ended) PW_REQUIRES(core_.mutex) { fetches_.Fail(loss, ended); }
  void List(std::vector<PendingItem>& out) const PW_REQUIRES(core_.mutex);

  // dataplane::DataSink
  void OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
               transport::BulkLease lease) override;
  void OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) override;
  Status MaySend(std::string_view peer, uint64_t key) const override;
  void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) override;

 private:
  Core& core_;
  const std::shared_ptr<UploadMemory> upload_memory_ = std::make_shared<UploadMemory>();
  uint64_t untaken_bytes_ PW_GUARDED_BY(core_.mutex) = 0;  // of uploads
  Fetches fetches_ PW_GUARDED_BY(core_.mutex);
  std::atomic<uint64_t> uploaded_{0}, fetched_{0};
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_TRANSFERS_H_
