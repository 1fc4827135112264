// DataSink: who hears what arrives on data connections.
//
// Threads: called on the data thread, without a lock; OnSendFailed also on a thread that sends.
#ifndef PTPATHWAYS_DATAPLANE_DATA_SINK_H_
#define PTPATHWAYS_DATAPLANE_DATA_SINK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/transport/bulk.h"

namespace pathways::dataplane {

class DataSink {
 public:
  virtual ~DataSink() = default;
  // Bytes [offset, offset + bytes.size()) of transfer `key`; they are readable while `lease` lives. Drop the lease with
  // an error to refuse the rest.
  virtual void OnBytes(std::string_view peer, uint64_t key, uint64_t offset, uint64_t total,
                       std::span<const std::byte> bytes, transport::BulkLease lease) = 0;
  // The sender, `peer`, gives up on transfer `key`.
  virtual void OnTransferFailed(std::string_view peer, uint64_t key, const Status& status) = 0;
  // `size` bytes of `total` came that could not be read; the sender is told. Others of the transfer may still come.
  virtual void OnPieceLost(std::string_view peer, uint64_t key, uint64_t /*size*/, uint64_t /*total*/,
                           const Status& status) {
    OnTransferFailed(peer, key, status);
  }
  // OK unless `peer` must not send under `key`. Called before each of the three above.
  virtual Status MaySend(std::string_view /*peer*/, uint64_t /*key*/) const { return OkStatus(); }
  // A caller of a new session has said who it is; before anything else of it.
  virtual void OnPeer(std::string_view /*peer*/, uint64_t /*session*/) {}
  // The transfer `key` that this process was sending has failed, and its receiver does not answer: it must be told by
  // another way.
  virtual void OnSendFailed(const std::string& peer, uint64_t key, const Status& status) = 0;
};

}  // namespace pathways::dataplane

#endif  // PTPATHWAYS_DATAPLANE_DATA_SINK_H_
