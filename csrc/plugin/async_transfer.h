// PJRT_AsyncHostToDeviceTransferManager: buffers whose bytes the caller brings later, piece by piece.
//
// Ownership: the caller's, until Destroy. Buffers retrieved from it live on; those never filled fail then.
// Threads:   every slot may be called from any thread, one transfer per buffer at a time.
#ifndef PTPATHWAYS_PLUGIN_ASYNC_TRANSFER_H_
#define PTPATHWAYS_PLUGIN_ASYNC_TRANSFER_H_

#include <memory>
#include <mutex>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/plugin/client.h"
#include "csrc/plugin/value.h"
#include "csrc_generated/pjrt_abi.h"

struct PJRT_AsyncHostToDeviceTransferManager {
  struct Slot {
    std::shared_ptr<pathways::plugin::Value> value;
    bool retrieved = false;
    bool finished = false;  // filled, or failed
  };
  ~PJRT_AsyncHostToDeviceTransferManager();

  std::shared_ptr<pathways::plugin::ClientState> client;
  PJRT_Device* device = nullptr;
  std::mutex mutex;
  std::vector<Slot> slots;  // guarded by mutex; its size is constant
};

namespace pathways::plugin {

Status Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args);
Status AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args);
Status AsyncHostToDeviceTransferManager_TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args);
Status AsyncHostToDeviceTransferManager_TransferLiteral(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args);
Status AsyncHostToDeviceTransferManager_RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args);
Status AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args* args);
Status AsyncHostToDeviceTransferManager_BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args* args);
Status AsyncHostToDeviceTransferManager_BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args);
Status AsyncHostToDeviceTransferManager_SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args);
Status AsyncHostToDeviceTransferManager_AddMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args* args);

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_ASYNC_TRANSFER_H_
