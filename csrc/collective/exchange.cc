#include "csrc/collective/exchange.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace pathways::collective {
namespace {

using Clock = std::chrono::steady_clock;

// Sleepers look again after this long, whatever the bells say; sooner while a peer has not shown itself.
constexpr auto kLookAgain = std::chrono::milliseconds(100);
constexpr auto kLookForLanes = std::chrono::milliseconds(1);
// A wait this long is worth telling about (Missing).
constexpr auto kNoteAfter = std::chrono::milliseconds(5);

std::string Text(const LaunchId& launch) { return std::to_string(launch.sequence) + "." + std::to_string(launch.node); }

}  // namespace

Exchange::Exchange(const ExchangePlan& plan, Lanes& lanes, ExchangeContext context)
    : plan_(plan), lanes_(lanes), context_(std::move(context)), reduced_(plan.reduced.begin) {
  peers_.reserve(plan.peers.size());
  for (size_t i = 0; i < plan.peers.size(); ++i) {
    PeerState state;
    state.plan = &plan.peers[i];
    if (plan.gathers) state.share = plan.shares[i];
    state.sent[0] = state.plan->send.begin;
    state.sent[1] = plan.reduced.begin;
    state.received[0] = state.plan->receive.begin;
    state.received[1] = state.share.begin;
    peers_.push_back(state);
  }
  if (!plan.reduces) return;
  for (size_t i = 0; i < plan.lower_hosts; ++i) terms_.emplace_back();
  for (const Stream& stream : plan.Own()) terms_.push_back({&stream, nullptr});
  for (size_t i = plan.lower_hosts; i < plan.peers.size(); ++i) terms_.emplace_back();
}

Status Exchange::Run() {
  CopyLocally();
  Clock::time_point idle_since{};
  bool noted = false;
  while (true) {
    if (context_.failed->load(std::memory_order_acquire)) return context_.failure();
    PW_ASSIGN_OR_RETURN(const bool moved, Step());
    if (Done()) break;
    if (moved) {
      idle_since = {};
      continue;
    }
    const auto now = Clock::now();
    if (idle_since == Clock::time_point{}) idle_since = now;
    const auto idle = now - idle_since;
    if (idle < context_.spin) {
      // The peer may be waiting for this very core.
      std::this_thread::yield();
      continue;
    }
    if (idle >= kNoteAfter) {
      NoteMissing();
      noted = true;
    }
    if (idle >= context_.limit) {
      std::string names;
      for (const uint32_t host : Missing()) names += (names.empty() ? "" : ", ") + lanes_.NameOf(host);
      return DeadlineExceeded(Where() + " must be joined by all its hosts within " +
                              std::to_string(context_.limit.count()) + " ms, and " + names + " did not arrive");
    }
    // A sender rings when it has made a ring; one that this host cannot reach yet does not.
    const bool unreached = std::any_of(peers_.begin(), peers_.end(),
                                       [&](const PeerState& peer) { return SendsLeft(peer) && peer.out == nullptr; });
    Bell* const bell = lanes_.OwnBell(context_.device);
    const uint32_t armed = bell->Arm();
    OpenLanes();
    auto again = Step();
    if (again.ok() && !*again && !context_.failed->load(std::memory_order_acquire)) {
      bell->Sleep(armed, std::min<std::chrono::nanoseconds>(unreached ? kLookForLanes : kLookAgain, context_.limit));
    }
    bell->Disarm();
    if (!again.ok()) return again.status();
    if (*again) idle_since = {};
    if (Done()) break;
  }
  if (noted) {
    std::lock_guard lock(mutex_);
    missing_.clear();
  }
  return OkStatus();
}

void Exchange::CopyLocally() {
  for (const auto& [from, to] : plan_.copies) CopyStream(from, to);
  for (const std::span<std::byte> output : plan_.zeros) {
    if (!output.empty()) std::memset(output.data(), 0, output.size());
  }
}

bool Exchange::SendsLeft(const PeerState& peer) const {
  return peer.sent[0] < peer.plan->send.end || (plan_.gathers && peer.sent[1] < plan_.reduced.end);
}

bool Exchange::ReceivesLeft(const PeerState& peer) const {
  return peer.received[0] < peer.plan->receive.end || peer.received[1] < peer.share.end;
}

bool Exchange::Done() const {
  if (plan_.reduces && reduced_ < plan_.reduced.end) return false;
  return std::none_of(peers_.begin(), peers_.end(),
                      [&](const PeerState& peer) { return SendsLeft(peer) || ReceivesLeft(peer); });
}

Result<bool> Exchange::Step() {
  bool moved = false;
  for (PeerState& peer : peers_) {
    PW_ASSIGN_OR_RETURN(const bool sent, SendTo(peer));
    moved |= sent;
  }
  for (PeerState& peer : peers_) {
    PW_ASSIGN_OR_RETURN(const bool received, ReceiveFrom(peer));
    moved |= received;
  }
  if (plan_.reduces && reduced_ < plan_.reduced.end) {
    PW_ASSIGN_OR_RETURN(const bool reduced, ReduceHeads());
    moved |= reduced;
  }
  return moved;
}

Result<bool> Exchange::SendTo(PeerState& peer) {
  if (!SendsLeft(peer)) return false;
  if (peer.out == nullptr) {
    PW_ASSIGN_OR_RETURN(peer.out, lanes_.Out(context_.device, peer.plan->host, peer.plan->device));
    if (peer.out == nullptr) return false;
  }
  bool moved = false;
  while (peer.out->CanPush()) {
    // What has been reduced first: others need nothing more to be done with it. One chunk of the other round after
    // each, so that nobody runs out of work.
    if (plan_.gathers && peer.sent[1] < reduced_) {
      PW_RETURN_IF_ERROR(SendChunk(peer, 1, reduced_));
    } else if (peer.sent[0] < peer.plan->send.end) {
      PW_RETURN_IF_ERROR(SendChunk(peer, 0, peer.plan->send.end));
    } else {
      break;
    }
    moved = true;
    // Reduce what has come meanwhile while it is in the caches.
    if (plan_.gathers) break;
  }
  return moved;
}

Status Exchange::SendChunk(PeerState& peer, uint32_t round, uint64_t end) {
  const uint64_t begin = peer.sent[round];
  const uint64_t size = std::min<uint64_t>(end - begin, peer.out->chunk_bytes());
  std::byte* const payload = peer.out->Begin(size);
  if (round == 1) {
    plan_.results[0].Read(begin, size, payload);
  } else {
    const std::vector<Stream>& sources = plan_.SourcesFor(*peer.plan);
    if (sources.size() == 1) {
      sources[0].Read(begin, size, payload);
    } else {
      std::vector<Term> terms;
      for (const Stream& stream : sources) terms.push_back({&stream, nullptr});
      ReduceTerms(terms, sources[0], plan_.reduction, begin, size, {nullptr, payload}, 0, terms.size());
    }
  }
  ChunkHeader header;
  header.launch = context_.gang->launch;
  header.offset = begin;
  header.total = round == 1 ? plan_.reduced.end : peer.plan->send.end;
  header.size = static_cast<uint32_t>(size);
  header.number = context_.number;
  header.ordinal = context_.ordinal;
  header.round = round;
  peer.sent[round] += size;
  bytes_sent_ += size;
  return peer.out->Push(header);
}

Result<bool> Exchange::ReceiveFrom(PeerState& peer) {
  if (!ReceivesLeft(peer) || peer.head != nullptr) return false;
  if (peer.in == nullptr) peer.in = lanes_.In(peer.plan->host, peer.plan->device, context_.device);
  bool moved = false;
  while (ReceivesLeft(peer)) {
    const InLane::Chunk* chunk = peer.in->Peek();
    if (chunk == nullptr) break;
    PW_ASSIGN_OR_RETURN(const bool ours, IsOurs(peer, chunk->header));
    if (!ours) {
      PW_RETURN_IF_ERROR(peer.in->Pop());
      moved = true;
      continue;
    }
    PW_RETURN_IF_ERROR(CheckChunk(peer, chunk->header));
    const ChunkHeader& header = chunk->header;
    if (header.round == 0 && plan_.reduces) {
      peer.head = chunk;
      break;
    }
    for (const Stream& target : header.round == 1 ? plan_.results : peer.plan->targets) {
      target.Write(header.offset, header.size, chunk->payload);
    }
    peer.received[header.round] += header.size;
    PW_RETURN_IF_ERROR(peer.in->Pop());
    moved = true;
    if (plan_.gathers) break;
  }
  return moved;
}

Result<bool> Exchange::ReduceHeads() {
  uint64_t end = plan_.reduced.end;
  for (const PeerState& peer : peers_) {
    if (peer.head == nullptr) return false;
    end = std::min(end, peer.head->header.offset + peer.head->header.size);
    if (plan_.hold) end = std::min(end, peer.sent[0]);
  }
  if (end <= reduced_) return false;
  ReduceRange(reduced_, end - reduced_);
  reduced_ = end;
  for (PeerState& peer : peers_) {
    if (peer.head->header.offset + peer.head->header.size > reduced_) continue;
    peer.received[0] = reduced_;
    peer.head = nullptr;
    PW_RETURN_IF_ERROR(peer.in->Pop());
  }
  return true;
}

void Exchange::ReduceRange(uint64_t begin, uint64_t size) {
  const size_t own = plan_.Own().size();
  for (size_t i = 0; i < peers_.size(); ++i) {
    const InLane::Chunk* head = peers_[i].head;
    terms_[i < plan_.lower_hosts ? i : i + own].dense = head->payload + (begin - head->header.offset);
  }
  // The first member's input may be its output.
  ReduceTerms(terms_, plan_.Own()[0], plan_.reduction, begin, size, {&plan_.results[0], nullptr}, plan_.lower_hosts,
              own);
  // The other members of this host get copies, which their inputs may be the memory of: those have been read.
  for (size_t i = 1; i < plan_.results.size(); ++i) {
    plan_.results[0].ForEach(begin, size, false, [&](size_t piece, uint64_t offset, uint64_t count, uint64_t) {
      std::memcpy(plan_.results[i].pieces()[piece].At(offset), plan_.results[0].pieces()[piece].At(offset), count);
    });
  }
}

Result<bool> Exchange::IsOurs(const PeerState& peer, const ChunkHeader& header) const {
  const Gang& gang = *context_.gang;
  if (header.launch < gang.launch) return false;  // a leftover of an earlier one
  if (header.launch == gang.launch) {
    if (header.ordinal == context_.ordinal) return true;
    if (header.ordinal < context_.ordinal) return false;
  }
  const std::string there = lanes_.NameOf(peer.plan->host);
  if (header.launch == gang.launch) {
    return Status(Code::kAborted, Where() + ": " + there + " must take part in it, and has gone on to its collective " +
                                      std::to_string(header.number));
  }
  return Status(Code::kAborted, Where() +
                                    ": gangs reached the hosts of the island in different orders, which is a "
                                    "deadlock: this host is at place " +
                                    Text(gang.launch) + " of the cluster's order, " + there + " at place " +
                                    Text(header.launch));
}

Status Exchange::CheckChunk(const PeerState& peer, const ChunkHeader& header) const {
  if (header.number != context_.number) {
    return Internal(Where() + ": all hosts must be at the same instruction, and " + lanes_.NameOf(peer.plan->host) +
                    " is at collective " + std::to_string(header.number));
  }
  const uint32_t round = header.round;
  if (round > (plan_.gathers ? 1u : 0u)) {
    return Internal(Where() + ": " + lanes_.NameOf(peer.plan->host) + " carries it out in another way");
  }
  const uint64_t end = round == 1 ? peer.share.end : peer.plan->receive.end;
  if (header.total != end || header.offset != peer.received[round] || header.size > end - header.offset ||
      header.size == 0) {
    return Internal(Where() + ": " + std::to_string(end) + " bytes were expected of " + lanes_.NameOf(peer.plan->host) +
                    ", which sends " + std::to_string(header.total) + "; the hosts run different programs");
  }
  return OkStatus();
}

void Exchange::OpenLanes() {
  for (PeerState& peer : peers_) {
    if (!ReceivesLeft(peer)) continue;
    if (peer.in == nullptr) peer.in = lanes_.In(peer.plan->host, peer.plan->device, context_.device);
    lanes_.Look(peer.in, peer.plan->host, peer.plan->device, context_.device);
  }
}

void Exchange::NoteMissing() {
  std::vector<uint32_t> missing;
  for (const PeerState& peer : peers_) {
    if (SendsLeft(peer) || (ReceivesLeft(peer) && peer.head == nullptr)) missing.push_back(peer.plan->host);
  }
  std::lock_guard lock(mutex_);
  missing_ = std::move(missing);
}

std::vector<uint32_t> Exchange::Missing() const {
  std::lock_guard lock(mutex_);
  return missing_;
}

std::string Exchange::Where() const {
  return "collective " + std::to_string(context_.number) + " of " + context_.gang->what;
}

}  // namespace pathways::collective
