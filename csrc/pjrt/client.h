// Client: one plugin's view of this host's devices; makes buffers and executables.
//
// Ownership: shared; buffers and executables keep it alive, so it goes last.
// Threads:   every method may be called from any thread.
#ifndef PTPATHWAYS_PJRT_CLIENT_H_
#define PTPATHWAYS_PJRT_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/pjrt/api.h"
#include "csrc/pjrt/buffer.h"
#include "csrc/pjrt/executable.h"
#include "csrc/pjrt/key_value.h"

namespace pathways::pjrt {

struct DeviceInfo {
  int id = 0;                 // the plugin's global id, what a device assignment names
  int local_hardware_id = 0;  // -1 when the plugin has none
  std::string kind;           // "cpu", "NVIDIA H100 80GB HBM3", "TPU v4", ...
  std::string debug_string;
};

struct MemoryStats {  // bytes
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes;
  std::optional<int64_t> limit_bytes;
};

class Client : public std::enable_shared_from_this<Client> {
 public:
  // `store`: for a client that several processes make together; each call then blocks until the others have called.
  static Result<std::shared_ptr<Client>> Create(std::shared_ptr<const Api> api, const NamedValues& options = {},
                                                std::shared_ptr<KeyValueStore> store = nullptr);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  const std::shared_ptr<const Api>& api() const { return api_; }
  PJRT_Client* raw() const { return client_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }

  // Addressable devices. Everywhere in this room "device index" is an index into this.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  PJRT_Device* raw_device(int device) const { return raw_devices_[static_cast<size_t>(device)]; }
  // The device's default memory, or null when the plugin has no memories.
  PJRT_Memory* raw_memory(int device) const { return default_memories_[static_cast<size_t>(device)]; }
  // INVALID_ARGUMENT unless `device` is a device index.
  Status CheckDevice(int device) const;
  // The index of the device with this plugin-wide id, or -1.
  int IndexOfDeviceId(int id) const;
  int IndexOfRawDevice(const PJRT_Device* device) const;
  // Nothing when the plugin does not report it (CPU).
  std::optional<MemoryStats> GetMemoryStats(int device) const;

  // `format` is "hlo" (HloModuleProto) or "mlir" (StableHLO, bytecode or text); `options` a CompileOptionsProto.
  Result<std::unique_ptr<Executable>> Compile(std::string_view code, std::string_view format, std::string_view options);
  // `serialized` comes from Executable::Serialize. `options` empty keeps those it was compiled with.
  Result<std::unique_ptr<Executable>> Deserialize(std::string_view serialized, std::string_view options = {});

  // A device buffer from dense row-major host memory. With a callback the plugin may read `data` until
  // `done_with_data` runs: exactly once, also on error, perhaps before this returns. Without one, `data` is copied
  // before this returns.
  Result<Buffer> BufferFromHost(const void* data, const TensorType& type, int device,
                                std::function<void(Status)> done_with_data = nullptr);
  Result<std::unique_ptr<AsyncBuffer>> CreateAsyncBuffer(const TensorType& type, int device);

  // Whether the plugin has the next two.
  bool CanDmaMap() const;
  // Devices copy to and from this host memory directly until DmaUnmap, before which it must not be freed.
  Status DmaMap(void* data, size_t size);
  // No copy may be under way.
  Status DmaUnmap(void* data);

 private:
  Client(std::shared_ptr<const Api> api, PJRT_Client* client, std::shared_ptr<KeyValueStore> store)
      : api_(std::move(api)), client_(client), store_(std::move(store)) {}
  Status ReadDescription();
  Status ReadDevice(PJRT_Device* device);

  const std::shared_ptr<const Api> api_;
  PJRT_Client* const client_;
  const std::shared_ptr<KeyValueStore> store_;
  std::string platform_name_;
  std::string platform_version_;
  std::vector<DeviceInfo> devices_;
  std::vector<PJRT_Device*> raw_devices_;
  std::vector<PJRT_Memory*> default_memories_;
  std::unordered_map<const PJRT_Device*, int> index_of_raw_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_CLIENT_H_
