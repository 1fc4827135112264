#include "csrc/controller/core.h"

#include <algorithm>
#include <cstring>

namespace pathways::controller {

Core::Core(ClusterOptions options)
    : lines_(options.process_space), state_([&] {
        options.sent_to = [this](const Connection& member) { return lines_.Sent(member); };
        return std::move(options);
      }()) {}

void Core::Apply(Input input, Effects& effects) {
  const uint32_t before = state_.live_host_count();
  Outputs out = std::move(spare_);
  switch (input.kind) {
    case Input::Kind::kMessage:
      OnMessage(input, out, effects);
      break;
    case Input::Kind::kClosed:
      if (lines_.OnClosed(input.route, static_cast<int64_t>(input.now_ms))) break;  // it may come back
      state_.OnDisconnected(Connection(input.route), "its connection closed (the process ended or was killed)", out);
      break;
    case Input::Kind::kTick: {
      const auto is_gone = [&](uint64_t pid) { return std::ranges::find(input.gone, pid) != input.gone.end(); };
      for (auto& [member, reason] : lines_.TakeGone(static_cast<int64_t>(input.now_ms), is_gone)) {
        state_.OnDisconnected(member, reason, out);
        ended_.push_back(std::move(member));
      }
      state_.OnTick(input.now_ms, out);
      break;
    }
    case Input::Kind::kServing:
      OnServing(input, out);
      break;
    case Input::Kind::kRotate:
      OnRotate(input.head, out);
      break;
    case Input::Kind::kRotated:
      if (rotation_) token_ = std::exchange(rotation_, std::nullopt)->cluster;
      break;
    case Input::Kind::kEnding:
      break;
  }
  Finish(std::move(out), before, effects);
  if (input.kind == Input::Kind::kRotate) lines_.Mark();
}

void Core::OnMessage(Input& input, Outputs& out, Effects& effects) {
  const Connection route(input.route);
  size_t bytes = input.head.size();
  for (const Payload& payload : input.payloads) bytes += payload->size();
  Lines::Verdict verdict{route, {}};
  if (const Result<wire::Head> head = wire::DecodeHead(input.head); head.ok()) {
    verdict = lines_.Take(route, input.sender, *head, bytes, effects.parcels, &effects.dropped);
  }
  if (!verdict.refusal.ok()) {
    effects.refused = verdict.refusal.ToString();
    out.push_back({route, wire::Encode(wire::Reject{std::move(verdict.refusal)}), {}});
  } else if (verdict.opened && rotation_) {
    lines_.Drop(*verdict.from);
    effects.refused = "somebody joins while the join token changes";
    out.push_back({route,
                   wire::Encode(wire::Reject{
                       Unavailable("the cluster's join token is being changed; join with the new one in a moment")}),
                   {}});
  } else if (verdict.from) {
    if (verdict.opened) state_.ComesFrom(input.address);
    state_.OnMessage(*verdict.from, std::move(input.head), std::move(input.payloads), input.now_ms, out);
    if (verdict.opened && !state_.Knows(*verdict.from)) ended_.push_back(*verdict.from);
  }
}

void Core::OnServing(const Input& input, Outputs& out) {
  // Whatever connections there were, they were another process's.
  lines_.CloseAll(static_cast<int64_t>(input.now_ms));
  state_.OnServing(input.pid, input.standby, out);
}

void Core::OnRotate(std::string_view lines, Outputs& out) {
  rotation_.emplace();
  for (std::string* token : {&rotation_->cluster, &rotation_->worker, &rotation_->client}) {
    const size_t end = lines.find('\n');
    *token = std::string(lines.substr(0, end));
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  }
  for (auto& [member, is_worker] : lines_.Members()) {
    out.push_back({member, wire::Encode(wire::Rotate{is_worker ? rotation_->worker : rotation_->client}), {}});
  }
}

void Core::Farewell(const std::string& reason, Effects& effects) {
  for (Outgoing& outgoing : state_.Farewell(reason)) Emit(outgoing, effects);
}

void Core::Finish(Outputs out, uint32_t hosts_before, Effects& effects) {
  for (Outgoing& outgoing : out) Emit(outgoing, effects);
  while (!overflowed_.empty()) {
    const auto [lost, reason] = std::move(overflowed_.back());
    overflowed_.pop_back();
    out.clear();
    state_.OnDisconnected(lost, reason, out);
    lines_.Drop(lost);
    for (Outgoing& outgoing : out) Emit(outgoing, effects);
  }
  // Now that they have been sent the last that was for them.
  for (const Connection& member : state_.TakeGone()) lines_.Drop(member);
  for (const Connection& member : ended_) lines_.Drop(member);
  ended_.clear();
  effects.log = state_.TakeLog();
  effects.hosts_changed = state_.live_host_count() != hosts_before;
  if (has_standby_) Digest(effects);
  out.clear();
  spare_ = std::move(out);
}

void Core::Emit(Outgoing& outgoing, Effects& effects) {
  if (outgoing.to.starts_with(kLocal)) {
    effects.local.push_back(std::move(outgoing));
    return;
  }
  const bool to_member = outgoing.to.starts_with(Lines::kPrefix);
  if (to_member && wire::TypeOf(outgoing.head) == wire::Type::kHeartbeat) {
    return lines_.Beat(outgoing.to, effects.parcels);
  }
  transport::Frames frames;
  frames.reserve(1 + outgoing.payloads.size());
  frames.emplace_back(std::move(outgoing.head));
  for (Payload& payload : outgoing.payloads) {
    frames.push_back(transport::Frame::Borrow(payload->data(), payload->size(), [payload] {}));
  }
  if (!to_member) {
    effects.parcels.push_back({std::move(outgoing.to), std::move(frames)});
    return;
  }
  if (Status room = lines_.Send(outgoing.to, std::move(frames), effects.parcels); !room.ok()) {
    overflowed_.emplace_back(outgoing.to, std::string(room.message()));
  }
}

void Core::Digest(const Effects& effects) {
  for (const Lines::Parcel& parcel : effects.parcels) {
    // The header: type, the gang's place in the order, size, and number on the line.
    uint64_t words[3] = {};
    const std::string_view head = parcel.frames[0].bytes();
    std::memcpy(words, head.data(), std::min(head.size(), sizeof words));
    for (const uint64_t word : {words[0], words[1], words[2], uint64_t{parcel.frames.size()}}) {
      digest_ = (digest_ ^ word) * 0x9E3779B97F4A7C15u;
      digest_ ^= digest_ >> 29;
    }
  }
}

}  // namespace pathways::controller
