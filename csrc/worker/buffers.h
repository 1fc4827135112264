// Buffers: values that come in, go out, or move to another device.
//
// Ownership: owned by the engine; borrows what it is made of.
// Threads:   the engine's, but for FailRead and unready_sends, which may be called from any. The plugin's callbacks
//            send what they have copied.
// Locks:     none.
#ifndef PTPATHWAYS_WORKER_BUFFERS_H_
#define PTPATHWAYS_WORKER_BUFFERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "csrc/base/pinned_memory.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/wire/bodies.h"
#include "csrc/wire/plan_bodies.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/found_shard.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/root_causes.h"

namespace pathways::worker {

class Buffers {
 public:
  using OnError = std::function<void(const Status&)>;

  Buffers(HostContext& context, const ClusterView& cluster, const RootCauses& causes, Incoming& incoming,
          dataplane::DataPlane& data, std::shared_ptr<Pinner> pinner = nullptr)
      : context_(context),
        cluster_(cluster),
        causes_(causes),
        incoming_(incoming),
        data_(data),
        copies_(std::move(pinner)) {}

  // Each an error only for a message that names no device of this host; else the buffer's client is told.
  Status Put(const wire::Put& put);
  Status Expect(const wire::Expect& expect);
  void Fetch(const wire::Fetch& fetch);
  void Copy(const wire::Copy& copy);
  void Free(const wire::Free& free);

  // A buffer whose bytes come as Data under `key`.
  Result<pjrt::Buffer> MakeIncoming(uint64_t key, size_t device, const TensorType& type, uint32_t from_host);
  // Sends one shard's bytes when they exist: from the device's memory where that is host memory, else through a copy. A
  // peer that is this host itself has no name. `box`: the part to send; the whole shard when it lists no dimensions.
  void SendShard(const std::string& peer, uint64_t key, FoundShard found, const wire::Box& box, OnError on_error);
  // The peer of host `host`, connected.
  Result<std::string> PeerOf(uint32_t host);
  // The receiver does not answer on its data connection, but the controller may reach it.
  void TellBySender(const std::string& peer, uint64_t key, const Status& status);

  // Values that are to be sent once they are there.
  int unready_sends() const { return unready_sends_; }

 private:
  Status Store(const wire::Put& put, size_t device, pjrt::Buffer buffer);
  Result<pjrt::Buffer> MakePut(const wire::Put& put, size_t device, bool* declared);
  Result<std::shared_ptr<store::Object>> CopyHere(const wire::Copy& copy, const FoundShard& from, size_t device);
  // A shard of the object that neither a transfer nor a run makes, so that only its own event tells of its error: where
  // the plugin hands no errors on, what reads it hears of it as of a run's.
  void Follow(store::Object& object, const pjrt::Buffer& buffer);
  void EndFollowed(const std::shared_ptr<store::Origin>& origin, const RootCauses::Inputs& before,
                   const Status& status);
  void SendCopy(const wire::Copy& copy, Result<FoundShard> source);
  // The whole buffer has no value, whatever was stored of it; its client is told.
  void StoreFailed(uint64_t id, const Status& status);
  void SendInline(uint64_t request, FoundShard found, size_t size, OnError fail);
  // Counted in unready_sends_ already.
  void ReadInline(uint64_t request, const pjrt::Buffer& buffer, size_t size, std::shared_ptr<store::Origin> origin,
                  OnError fail);
  void FetchStaged(const wire::Fetch& fetch, FoundShard found, OnError fail);
  // A copy of a shard on a device of this host, ready when its own event is.
  Result<pjrt::Buffer> Duplicate(const store::Object::Shard& from, size_t device);
  // Bytes that can be read now, which `owner` keeps.
  void SendBytes(const std::string& peer, uint64_t key, const wire::Box& box, const TensorType& type, const void* whole,
                 std::shared_ptr<const void> owner);
  // The same when it is known that the run which made them has ended well; else `on_error`, on the engine's thread.
  void SendMade(const std::string& peer, uint64_t key, const wire::Box& box,
                const std::shared_ptr<const TensorType>& type, const void* whole,
                const std::shared_ptr<const void>& owner, const std::shared_ptr<store::Origin>& origin,
                const OnError& on_error);
  // A value that was to be read failed: answers with the cause of the run that made it, when that has ended, or of what
  // came from elsewhere, instead of the plugin's text. May be called on any thread; `on_error` runs on the engine's.
  void FailRead(std::shared_ptr<store::Origin> origin, const Status& status, OnError on_error);

  HostContext& context_;
  const ClusterView& cluster_;
  const RootCauses& causes_;
  Incoming& incoming_;
  dataplane::DataPlane& data_;
  PinnedMemory copies_;                // of values whose devices' memory this process cannot read
  std::atomic<int> unready_sends_{0};  // counted down on any thread
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_BUFFERS_H_
