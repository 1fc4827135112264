#include "csrc/collective/lanes.h"

#include <algorithm>
#include <new>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/transport/shm.h"
#include "csrc/wire/bodies.h"

namespace pathways::collective {
namespace {

constexpr uint32_t kDevicesMax = 1 << 12;
// What is kept of one host that is not known yet: 8 chunks of 128 KiB for each pair of devices, and more.
constexpr size_t kEarlyMessages = 4096;
constexpr uint64_t kEarlyBytes = uint64_t{256} << 20;
// A host of this machine that has shown no bells for so long has none, and gets messages.
constexpr auto kHomePatience = std::chrono::seconds(2);

}  // namespace

std::shared_ptr<Lanes> Lanes::Make(LanesOptions options, dataplane::DataPlane* data) {
  std::shared_ptr<Lanes> lanes(new Lanes(std::move(options), data));
  if (data != nullptr) {
    data->HandleMessages([lanes](std::string_view peer, const wire::Head& head, transport::Frames& frames) {
      return lanes->OnMessage(peer, head, frames);
    });
  }
  return lanes;
}

Lanes::Lanes(LanesOptions options, dataplane::DataPlane* data) : options_(std::move(options)), data_(data) {
  auto home = options_.shared_memory_bytes == 0 || !transport::CheckClusterName(options_.cluster).ok()
                  ? Result<std::unique_ptr<Segment>>(Unavailable("no shared memory"))
                  : Segment::Create(HomeName(options_.host), sizeof(Home));
  if (home.ok()) {
    home_ = *std::move(home);
    bells_ = new (home_->data()) Home();
    home_->SetReady();
  } else {
    private_home_ = std::make_unique<Home>();
    bells_ = private_home_.get();
  }
}

void Lanes::Detach() {
  std::lock_guard lock(mutex_);
  data_ = nullptr;
}

std::string Lanes::HomeName(uint32_t host) const {
  return std::string(transport::kSegmentPrefix) + options_.cluster + "-" + std::to_string(SegmentOwner(host)) + "-0";
}

std::string Lanes::RingName(uint32_t from_host, uint32_t from_device, uint32_t to_host, uint32_t to_device) const {
  const uint64_t lane = ((uint64_t{from_device} * kDevicesMax + to_device) << 32 | to_host) + 1;
  return std::string(transport::kSegmentPrefix) + options_.cluster + "-" + std::to_string(SegmentOwner(from_host)) +
         "-" + std::to_string(lane);
}

void Lanes::SetHost(HostInfo host) {
  std::lock_guard lock(mutex_);
  const uint32_t number = host.host;
  peers_[number].info = std::move(host);
  if (!early_.empty() && data_ != nullptr) {
    data_->Post([lanes = shared_from_this()] { lanes->HandleEarly(); });
  }
}

void Lanes::HandleEarly() {
  std::deque<std::pair<std::string, transport::Frames>> early;
  {
    std::lock_guard lock(mutex_);
    early.swap(early_);
    early_of_.clear();
  }
  // Runs on the data thread, as every OnMessage does: nothing overtakes them, and what is early still is kept again.
  for (auto& [peer, frames] : early) {
    auto head = wire::DecodeHead(frames[0].bytes());
    Status status = head.ok() ? OnMessage(peer, *head, frames) : head.status();
    if (!status.ok()) logging::Warning("", "refused a chunk: " + status.ToString());
  }
}

std::string Lanes::NameOf(uint32_t host) const {
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(host);
  const std::string number = "host " + std::to_string(host);
  return at == peers_.end() || at->second.info.name.empty() ? number : number + " (" + at->second.info.name + ")";
}

Bell* Lanes::OwnBell(uint32_t device) { return &bells_->bells[device % kBells]; }

void Lanes::RingAll() {
  for (Bell& bell : bells_->bells) bell.Ring();
}

Bell* Lanes::PeerBell(uint32_t host, uint32_t device) {
  Peer& peer = peers_[host];
  if (!peer.home) {
    auto home = Segment::Open(HomeName(host));
    if (!home.ok() || (*home)->size() < sizeof(Home)) return nullptr;
    peer.home = *std::move(home);
  }
  return &reinterpret_cast<Home*>(peer.home->data())->bells[device % kBells];
}

Result<OutLane*> Lanes::Out(uint32_t device, uint32_t to_host, uint32_t to_device) {
  std::lock_guard lock(mutex_);
  const Key key{device, to_host, to_device};
  if (auto at = out_.find(key); at != out_.end()) return at->second.get();
  const auto known = peers_.find(to_host);
  if (known == peers_.end()) return nullptr;  // its description is still on its way
  Peer& peer = known->second;
  Status no_ring = Unavailable("it is on another machine");
  if (peer.info.same_machine && home_) {
    if (Bell* bell = PeerBell(to_host, to_device)) {
      auto ring = MakeRing(key, bell);
      if (ring.ok()) {
        OutLane* lane = ring->get();
        out_[key] = *std::move(ring);
        bell->Ring();
        return lane;
      }
      no_ring = ring.status();
    } else {
      const auto now = std::chrono::steady_clock::now();
      if (peer.sought == std::chrono::steady_clock::time_point{}) peer.sought = now;
      if (data_ == nullptr || now - peer.sought < kHomePatience) return nullptr;
      no_ring = Unavailable("it shows no shared memory");
    }
  } else if (peer.info.same_machine) {
    no_ring = Unavailable("this host has no shared memory");
  }
  auto lane = MakeMessages(key);
  if (!lane.ok()) return lane.status().WithPrefix(no_ring.ToString());
  return (out_[key] = *std::move(lane)).get();
}

Result<std::unique_ptr<OutLane>> Lanes::MakeRing(const Key& key, Bell* bell) {
  const auto& [device, to_host, to_device] = key;
  const size_t bytes = Ring::BytesFor(options_.shape);
  if (ring_bytes_ + bytes > options_.shared_memory_bytes) {
    return ResourceExhausted("collectives may use " + std::to_string(options_.shared_memory_bytes) +
                             " bytes of shared memory on this host, and do");
  }
  PW_ASSIGN_OR_RETURN(auto segment, Segment::Create(RingName(options_.host, device, to_host, to_device), bytes));
  const Ring ring = Ring::Make(segment->data(), options_.shape);
  segment->SetReady();
  ring_bytes_ += bytes;
  return std::make_unique<OutLane>(std::move(segment), ring, bell);
}

Result<std::unique_ptr<OutLane>> Lanes::MakeMessages(const Key& key) {
  const auto [device, to_host, to_device] = key;
  const HostInfo& host = peers_[to_host].info;
  if (data_ == nullptr) {
    return Unavailable("collectives with host " + std::to_string(to_host) + " (" + host.name +
                       ") need shared memory or a data plane, and have neither");
  }
  PW_RETURN_IF_ERROR(data_->ConnectTo(host.name, host.data_endpoint, host.machine));
  const auto send = [this, device, to_host, to_device](const ChunkHeader& header, std::string payload) {
    wire::CollectiveChunk chunk;
    chunk.source_host = options_.host;
    chunk.source_device = device;
    chunk.target_device = to_device;
    chunk.sequence = header.launch.sequence;
    chunk.node = header.launch.node;
    chunk.offset = header.offset;
    chunk.total = header.total;
    chunk.number = header.number;
    chunk.ordinal = header.ordinal;
    chunk.round = header.round;
    transport::Frames frames;
    frames.emplace_back(wire::Encode(chunk));
    frames.emplace_back(std::move(payload));
    return Send(to_host, std::move(frames));
  };
  return std::make_unique<OutLane>(options_.shape, send);
}

InLane* Lanes::In(uint32_t from_host, uint32_t from_device, uint32_t device) {
  std::lock_guard lock(mutex_);
  auto& lane = in_[Key{device, from_host, from_device}];
  if (!lane) {
    lane = std::make_unique<InLane>([this, from_host, from_device, device](uint32_t count) {
      transport::Frames frames;
      frames.emplace_back(wire::Encode(wire::CollectiveTaken{options_.host, from_device, device, count}));
      return Send(from_host, std::move(frames));
    });
  }
  return lane.get();
}

void Lanes::Look(InLane* lane, uint32_t from_host, uint32_t from_device, uint32_t device) {
  if (lane->in_memory() || !home_) return;
  auto segment = Segment::Open(RingName(from_host, from_device, options_.host, device));
  if (!segment.ok()) return;
  auto ring = Ring::Attach((*segment)->data(), (*segment)->size());
  if (!ring.ok()) return;
  std::lock_guard lock(mutex_);
  if (Bell* bell = PeerBell(from_host, from_device)) lane->Attach(*std::move(segment), *ring, bell);
}

Status Lanes::Send(uint32_t host, transport::Frames frames) {
  dataplane::DataPlane* data;
  HostInfo info;
  {
    std::lock_guard lock(mutex_);
    data = data_;
    info = peers_[host].info;
  }
  if (data == nullptr) return Unavailable("this host's data plane has stopped");
  PW_RETURN_IF_ERROR(data->ConnectTo(info.name, info.data_endpoint, info.machine));
  return data->SendMessage(dataplane::DataPlane::PeerOfHost(info.name), std::move(frames))
      .WithPrefix("a message to " + info.name);
}

Status Lanes::CheckSender(std::string_view peer, uint32_t host) const {
  std::lock_guard lock(mutex_);
  const auto at = peers_.find(host);
  if (at != peers_.end() && (peer == "w/" + at->second.info.name || peer == "to/" + at->second.info.name)) {
    return OkStatus();
  }
  return InvalidArgument("a chunk of host " + std::to_string(host) + " must come from that host, and came from " +
                         std::string(peer));
}

Status Lanes::OnMessage(std::string_view peer, const wire::Head& head, transport::Frames& frames) {
  {
    std::lock_guard lock(mutex_);
    const auto same_name = [&](const auto& item) {
      return peer == "w/" + item.second.info.name || peer == "to/" + item.second.info.name;
    };
    const bool known = std::any_of(peers_.begin(), peers_.end(), same_name);
    if (!known || early_of_.contains(peer)) {
      Early& early = early_of_[std::string(peer)];
      uint64_t bytes = 0;
      for (const transport::Frame& frame : frames) bytes += frame.size();
      if (early.messages >= kEarlyMessages || bytes > kEarlyBytes - early.bytes) {
        return ResourceExhausted("expected at most " + std::to_string(kEarlyMessages) + " messages and " +
                                 std::to_string(kEarlyBytes >> 20) +
                                 " MiB of collectives from a host that is not known yet, got more");
      }
      ++early.messages;
      early.bytes += bytes;
      early_.emplace_back(std::string(peer), std::move(frames));
      return OkStatus();
    }
  }
  return Handle(peer, head, frames);
}

Status Lanes::Handle(std::string_view peer, const wire::Head& head, transport::Frames& frames) {
  if (head.header.type == wire::Type::kCollectiveTaken) {
    PW_ASSIGN_OR_RETURN(const wire::CollectiveTaken taken, wire::Decode<wire::CollectiveTaken>(head.body));
    PW_RETURN_IF_ERROR(CheckSender(peer, taken.host));
    std::lock_guard lock(mutex_);
    const auto at = out_.find(Key{taken.source_device, taken.host, taken.target_device});
    if (at == out_.end()) return InvalidArgument("chunks were taken that this host has never sent");
    at->second->Credit(taken.count);
    OwnBell(taken.source_device)->Ring();
    return OkStatus();
  }
  PW_ASSIGN_OR_RETURN(const wire::CollectiveChunk chunk, wire::Decode<wire::CollectiveChunk>(head.body));
  PW_RETURN_IF_ERROR(CheckSender(peer, chunk.source_host));
  if (frames.size() != 2 || chunk.source_device >= kDevicesMax || chunk.target_device >= kDevicesMax) {
    return InvalidArgument("a chunk must have one payload and go from a device to a device, and does not");
  }
  const ChunkHeader header{{chunk.sequence, chunk.node},
                           chunk.offset,
                           chunk.total,
                           static_cast<uint32_t>(frames[1].size()),
                           chunk.number,
                           chunk.ordinal,
                           chunk.round};
  PW_RETURN_IF_ERROR(
      In(chunk.source_host, chunk.source_device, chunk.target_device)->Deliver(header, std::move(frames[1])));
  OwnBell(chunk.target_device)->Ring();
  return OkStatus();
}

}  // namespace pathways::collective
