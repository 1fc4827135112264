// Tokens: how Python names values that torch_xla holds, and hands values to torch_xla.
//
// A token is the number that PJRT_Buffer_UnsafePointer gave for a buffer, or that Transfer gave for a result. What
// Transfer makes belongs to its token until an upload adopts it.
//
// Ownership: what is adopted next, and what was declared, is the calling thread's. Threads: any. Locks: none.
#ifndef PTPATHWAYS_PLUGIN_ADOPT_H_
#define PTPATHWAYS_PLUGIN_ADOPT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tiling.h"
#include "csrc/client/session.h"
#include "csrc/values/client.h"
#include "csrc/values/value.h"

namespace pathways::plugin {

// Copies the value that `token` names to the plugin's device `device_id`, worker to worker, and returns the token of
// the copy at once. The source may be deleted right after. NOT_FOUND: an unknown token; INVALID_ARGUMENT: no such
// device; UNIMPLEMENTED: one of the two is a slice of several devices.
Result<uint64_t> Transfer(uint64_t token, int64_t device_id);

// A token for a logical buffer that is made elsewhere, as a tensor of that type on a logical device, lying there as
// `tiling` says (null for a slice of one device). `source`: the token of what it is a copy of, or 0. `kept`: whether
// somebody else holds the buffer, so that no run may be given its memory.
// FAILED_PRECONDITION: the buffer lies on other devices.
Result<uint64_t> AdoptBuffer(std::shared_ptr<client::LogicalBuffer> buffer, int64_t device_id,
                             std::vector<int64_t> dims, TilingPtr tiling, uint64_t source, bool kept);

// The next calls of PJRT_Client_BufferFromHostBuffer of this thread give handles of the values that `tokens` own, one
// each, in order, instead of uploading; one fails when its type or device differs. An empty list drops pending
// adoptions, and what they would have adopted. NOT_FOUND: a token owns nothing; nothing is pending then.
Status AdoptNextUploads(std::span<const uint64_t> tokens);

// From now until StopDeclaring, PJRT_Client_BufferFromHostBuffer on this thread reads nothing and sends nothing: it
// gives handles of values whose bytes their hosts get by themselves (input pipelines).
void StartDeclaring();
struct Declared {
  int64_t device_id = 0;
  std::vector<uint32_t> devices;  // the cluster's numbers, by shard
  uint64_t key = 0;               // under key + i the host of shard i is to deliver its bytes
  std::vector<int64_t> dims;      // of the whole tensor
  TilingPtr tiling;               // null for one device
};
// What was declared, in order.
std::vector<Declared> StopDeclaring();

// --- for PJRT_Client_BufferFromHostBuffer, of the calling thread
// The value that the next upload gives, whose hold (AddHolder) passes to the caller; null: the upload is one.
values::ValuePtr TakeNextUpload();
bool Declares();
// What an upload gives while the thread declares.
Result<values::ValuePtr> Declare(const std::shared_ptr<values::ClientState>& client, PJRT_Device* device,
                                 const TensorType& type, const TilingPtr& tiling);

}  // namespace pathways::plugin

#endif  // PTPATHWAYS_PLUGIN_ADOPT_H_
