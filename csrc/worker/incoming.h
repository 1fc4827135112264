// Incoming: buffers whose bytes are on their way, from a client or from another worker.
//
// The engine declares a buffer when the control message comes; its bytes may arrive before or after that. The device
// buffer exists, and computations are enqueued on it, before the first byte does.
//
// Ownership: owned by the engine; the data plane's sink.
// Threads:   Declare and the Fail functions may be called from any thread once Attach was; all else is the data
// thread's.
#ifndef PTPATHWAYS_WORKER_INCOMING_H_
#define PTPATHWAYS_WORKER_INCOMING_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/pjrt/client.h"

namespace pathways::worker {

inline constexpr uint32_t kFromClient = UINT32_MAX;

class Incoming : public dataplane::DataSink {
 public:
  // Called once, before traffic.
  void Attach(dataplane::DataPlane* data) { data_ = data; }

  // Bytes under `key` fill `buffer`. `from_host` is the sender, or kFromClient.
  void Declare(uint64_t key, std::shared_ptr<pjrt::AsyncBuffer> buffer, uint32_t from_host);
  void FailFromHost(uint32_t host, Status status);
  void FailOfClient(uint32_t client, Status status);

  void OnBytes(uint64_t key, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
               transport::BulkLease lease) override;
  void OnTransferFailed(uint64_t key, const Status& status) override;

 private:
  struct Entry {
    std::shared_ptr<pjrt::AsyncBuffer> buffer;
    uint32_t from_host = kFromClient;
    uint64_t received = 0;
  };
  struct Early {
    uint64_t offset;
    uint64_t total;
    std::span<const std::byte> bytes;
    transport::BulkLease lease;
    Status failure;
  };
  void Take(uint64_t key, Entry& entry, uint64_t offset, uint64_t total, std::span<const std::byte> bytes,
            transport::BulkLease lease);
  void Fail(uint64_t key, const Status& status);
  template <typename Predicate>
  void FailWhere(Predicate predicate, const Status& status);

  dataplane::DataPlane* data_ = nullptr;
  // Owned by the data thread:
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_map<uint64_t, std::vector<Early>> early_;  // bounded by the senders' windows
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_INCOMING_H_
