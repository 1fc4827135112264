#include "csrc/values/transfer.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/base/interrupt.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/base/waits.h"
#include "csrc/values/client.h"
#include "csrc/values/host_layout.h"

namespace pathways::values {
namespace {

// Runs `work` with the value's shard after everything submitted for its device before; sets `done` when the shard is an
// error, and when the event that `work` gives is set.
void Follow(const ValuePtr& value, std::shared_ptr<Event> done,
            std::function<std::shared_ptr<Event>(const client::Shard&)> work) {
  const uint32_t device = static_cast<uint32_t>(value->device()->description.id);
  value->client()->sequencer().Submit({&device, 1}, [value, done = std::move(done), work = std::move(work)] {
    const Result<client::Shard>& shard = value->shard();
    if (!shard.ok()) {
      done->Set(shard.status());
      return;
    }
    work(*shard)->OnReady([done](const Status& status) { done->Set(status); });
  });
}

// A fetch that a Ctrl-C ends: the caller's memory is written to before `done` is set and never after.
class Fetching : public std::enable_shared_from_this<Fetching> {
 public:
  explicit Fetching(std::shared_ptr<Event> done) : done_(std::move(done)) {}

  std::shared_ptr<Event> Start(const client::Shard& shard, void* destination, uint64_t size) {
    {
      std::lock_guard lock(mutex_);
      if (given_up_) return done_;
      starting_ = true;
    }
    uint64_t request = 0;
    const std::shared_ptr<client::Session>& session = shard.buffer->session();
    std::shared_ptr<Event> event = session->transfers().Fetch(shard, destination, size, &request);
    bool give_up = false;
    {
      std::lock_guard lock(mutex_);
      starting_ = false;
      request_ = request;
      session_ = session;
      give_up = given_up_;
    }
    if (give_up) session->transfers().GiveUp(request, Cancelled(interrupt::kMessage));
    return event;
  }

  void GiveUp() {
    uint64_t request = 0;
    std::shared_ptr<client::Session> session;
    {
      std::lock_guard lock(mutex_);
      given_up_ = true;
      if (starting_) return;  // Start sees it
      request = request_;
      session = session_;
    }
    if (request == 0) {
      done_->Set(Cancelled(interrupt::kMessage));  // not begun: the gang it waits for is incomplete
    } else {
      session->transfers().GiveUp(request, Cancelled(interrupt::kMessage));
    }
  }

 private:
  const std::shared_ptr<Event> done_;
  std::mutex mutex_;
  bool starting_ PW_GUARDED_BY(mutex_) = false;
  bool given_up_ PW_GUARDED_BY(mutex_) = false;
  uint64_t request_ PW_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<client::Session> session_ PW_GUARDED_BY(mutex_);  // set with request_
};

// A fetch of a tensor whose parts lie on several devices: each lands where it belongs, or is put there when it came.
class Gathering : public std::enable_shared_from_this<Gathering> {
 public:
  Gathering(ValuePtr value, char* destination, std::shared_ptr<Event> done)
      : value_(std::move(value)), destination_(destination), done_(std::move(done)) {}

  // Gives one fetch per part, for GiveUp.
  void Start(const client::Shard& any) {
    const Tiling& tiling = *value_->tiling();
    const TensorType& type = value_->type();
    const std::vector<size_t> holders = tiling.Holders();
    // Whole rows of the tensor need no second copy.
    const bool in_rows = tiling.Divides(type.dims) && tiling.tile_count() == tiling.parts()[0];
    const auto bytes = static_cast<size_t>(tiling.ShardType(type).ByteSize());
    std::vector<std::pair<uint32_t, std::shared_ptr<Fetching>>> fetches;
    for (uint32_t tile = 0; tile < holders.size(); ++tile) {
      if (!tiling.BoxOf(type, tile).is_empty()) {
        fetches.emplace_back(tile, std::make_shared<Fetching>(Event::Make()));
      }
    }
    {
      std::lock_guard lock(mutex_);
      left_ = fetches.size();
      for (const auto& [tile, fetching] : fetches) fetches_.push_back(fetching);
      if (given_up_) {
        done_->Set(Cancelled(interrupt::kMessage));
        return;
      }
    }
    for (const auto& [tile, fetching] : fetches) {
      std::shared_ptr<std::vector<char>> landing;
      char* to = destination_ + tile * bytes;
      if (!in_rows) {
        landing = std::make_shared<std::vector<char>>(bytes);
        to = landing->data();
      }
      const client::Shard shard{any.buffer, static_cast<uint32_t>(holders[tile])};
      fetching->Start(shard, to, bytes)->OnReady([self = shared_from_this(), landing, tile](const Status& status) {
        self->Arrived(status, landing, tile);
      });
    }
  }

  void GiveUp() {
    std::vector<std::shared_ptr<Fetching>> fetches;
    {
      std::lock_guard lock(mutex_);
      given_up_ = true;
      fetches = fetches_;
    }
    if (fetches.empty()) done_->Set(Cancelled(interrupt::kMessage));  // not begun
    for (const auto& fetching : fetches) fetching->GiveUp();
  }

 private:
  void Arrived(const Status& status, const std::shared_ptr<std::vector<char>>& landing, uint32_t tile) {
    if (status.ok() && landing != nullptr) {
      const TensorType& type = value_->type();
      const Tiling::Box box = value_->tiling()->BoxOf(type, tile);
      const ByteStrides strides = RowMajorStrides(type);
      int64_t offset = 0;
      for (size_t i = 0; i < strides.size(); ++i) offset += box.start[i] * strides[i];
      CopyElements({type.dtype, box.size}, landing->data(), RowMajorStrides(value_->shard_type()),
                   destination_ + offset, strides);
    }
    Status outcome;
    {
      std::lock_guard lock(mutex_);
      if (!status.ok() && first_error_.ok()) first_error_ = status;
      if (--left_ > 0) return;
      outcome = first_error_;
    }
    done_->Set(outcome);
  }

  const ValuePtr value_;
  char* const destination_;
  const std::shared_ptr<Event> done_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Fetching>> fetches_ PW_GUARDED_BY(mutex_);
  size_t left_ PW_GUARDED_BY(mutex_) = 0;
  bool given_up_ PW_GUARDED_BY(mutex_) = false;
  Status first_error_ PW_GUARDED_BY(mutex_);
};

// Fetches all of a value. `watched` is called when the caller's thread is interrupted.
std::shared_ptr<Event> FetchWhole(const ValuePtr& value, const client::Shard& shard, void* destination,
                                  std::function<void()>& watched) {
  if (value->tiling() == nullptr || value->tiling()->is_replicated()) {
    auto done = Event::Make();
    auto fetching = std::make_shared<Fetching>(done);
    watched = [fetching] { fetching->GiveUp(); };
    return fetching->Start(shard, destination, static_cast<uint64_t>(value->type().ByteSize()));
  }
  auto done = Event::Make();
  auto gathering = std::make_shared<Gathering>(value, static_cast<char*>(destination), done);
  watched = [gathering] { gathering->GiveUp(); };
  gathering->Start(shard);
  return done;
}

// What a Ctrl-C gives up: the fetch once it has begun, or its beginning.
class Interruptible {
 public:
  void Begin(const std::function<void()>& give_up) {
    bool now = false;
    {
      std::lock_guard lock(mutex_);
      give_up_ = give_up;
      now = given_up_;
    }
    if (now) give_up();
  }
  // False: it has not begun.
  bool GiveUp() {
    std::function<void()> give_up;
    {
      std::lock_guard lock(mutex_);
      given_up_ = true;
      give_up = give_up_;
    }
    if (give_up) give_up();
    return give_up != nullptr;
  }
  bool given_up() {
    std::lock_guard lock(mutex_);
    return given_up_;
  }

 private:
  std::mutex mutex_;
  std::function<void()> give_up_ PW_GUARDED_BY(mutex_);
  bool given_up_ PW_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<Event> FetchValue(const ValuePtr& value, void* destination, uint64_t offset, uint64_t size) {
  auto done = Event::Make();
  if (FetchClock::AccountsThisThread()) {
    value->client()->fetch_clock().Begin();
    auto entry =
        std::make_shared<std::optional<waits::Entry>>(std::in_place, "the value of a " + value->type().ToString());
    done->OnReady([client = value->client(), entry](const Status&) {
      client->fetch_clock().End(client->session()->waiting());
      entry->reset();
    });
  }
  const uint64_t whole = static_cast<uint64_t>(value->type().ByteSize());
  auto interruptible = std::make_shared<Interruptible>();
  Follow(value, done, [value, interruptible, destination, offset, size, whole](const client::Shard& shard) {
    if (whole == 0 || size == 0) return shard.buffer->session()->transfers().Ready(shard);
    if (interruptible->given_up()) return Event::Done(Cancelled(interrupt::kMessage));
    std::function<void()> give_up;
    if (offset == 0 && size == whole) {
      std::shared_ptr<Event> fetched = FetchWhole(value, shard, destination, give_up);
      interruptible->Begin(give_up);
      return fetched;
    }
    auto bytes = std::make_shared<std::vector<char>>(whole);
    auto copied = Event::Make();
    FetchWhole(value, shard, bytes->data(), give_up)
        ->OnReady([bytes, copied, destination, offset, size](const Status& status) {
          if (status.ok()) std::memcpy(destination, bytes->data() + offset, size);
          copied->Set(status);
        });
    interruptible->Begin(give_up);
    return copied;
  });
  if (!done->IsReady()) {
    auto wait = std::make_shared<interrupt::Wait>([interruptible, done] {
      if (!interruptible->GiveUp()) done->Set(Cancelled(interrupt::kMessage));
    });
    done->OnReady([wait](const Status&) { wait->End(); });
  }
  return done;
}

Result<ValuePtr> CopyValue(const ValuePtr& value, PJRT_Device* device) {
  const std::shared_ptr<ClientState>& client = value->client();
  PW_ASSIGN_OR_RETURN(const PJRT_Device::DeviceListPtr devices, device->Bound());
  if (value->tiling() != nullptr || devices->size() > 1) {
    return Unimplemented("PJRT copies between single devices; one to or from a slice of several is pw.transfer()");
  }
  auto copy = std::make_shared<Value>(client, device, value->array_type(), nullptr, devices);
  const uint32_t numbers[] = {static_cast<uint32_t>(value->device()->description.id),
                              static_cast<uint32_t>(device->description.id)};
  client->sequencer().Submit(numbers, [value, copy] {
    const Result<client::Shard>& shard = value->shard();
    copy->Resolve(shard.ok() ? shard->buffer->session()->buffers().Copy(*shard, copy->devices().front()) : shard);
  });
  return copy;
}

std::shared_ptr<Event> ReadyOf(const ValuePtr& value) {
  auto done = Event::Make();
  Follow(value, done, [value](const client::Shard& shard) {
    const std::shared_ptr<client::Session>& session = shard.buffer->session();
    if (value->tiling() == nullptr || shard.buffer->ready() != nullptr) return session->transfers().Ready(shard);
    auto all = Event::Make();
    auto left = std::make_shared<std::atomic<size_t>>(value->devices().size());
    for (uint32_t i = 0; i < value->devices().size(); ++i) {
      session->transfers().Ready({shard.buffer, i})->OnReady([all, left](const Status& status) {
        if (!status.ok() || left->fetch_sub(1) == 1) all->Set(status);
      });
    }
    return all;
  });
  return done;
}

}  // namespace pathways::values
