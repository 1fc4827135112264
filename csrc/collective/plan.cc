#include "csrc/collective/plan.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace pathways::collective {
namespace {

using hlo::CollectiveKind;
using hlo::CollectiveOp;
using hlo::CollectiveOperand;

// How an operand's input and output relate to the group: blocks of `row_bytes` in `outer` rows.
struct Blocks {
  uint64_t outer = 1;
  uint64_t row_bytes = 0;  // of one block
};

class Builder {
 public:
  Builder(const CollectiveOp& op, const Layout& layout, std::span<const LocalPart> parts, ExchangePlan* plan)
      : op_(op), layout_(layout), parts_(parts), plan_(*plan) {}

  Status Build() {
    PW_RETURN_IF_ERROR(CheckParts());
    for (size_t i = 0; i < layout_.hosts.size(); ++i) {
      if (i == layout_.own) continue;
      PeerPlan peer;
      peer.host = layout_.hosts[i].host;
      peer.device = layout_.DeviceFor(i);
      plan_.peers.push_back(std::move(peer));
    }
    plan_.lower_hosts = layout_.own;
    switch (op_.kind) {
      case CollectiveKind::kAllReduce:
        AllReduce();
        break;
      case CollectiveKind::kReduceScatter:
        ReduceScatter();
        break;
      case CollectiveKind::kAllGather:
        AllGather();
        break;
      case CollectiveKind::kAllToAll:
        AllToAll();
        break;
      case CollectiveKind::kPermute:
        Permute();
        break;
      default:
        return Unimplemented("collectives of kind " + std::to_string(static_cast<int>(op_.kind)) + " are not known");
    }
    return OkStatus();
  }

 private:
  std::string Name() const { return "collective " + std::to_string(op_.number); }
  uint64_t size() const { return layout_.members.size(); }
  size_t HostOf(size_t peer) const { return peer < layout_.own ? peer : peer + 1; }
  const std::vector<uint32_t>& PeerPositions(size_t peer) const { return layout_.hosts[HostOf(peer)].positions; }

  Status CheckParts() {
    const auto& first = parts_[0].operands;
    const bool reduces = op_.kind == CollectiveKind::kAllReduce || op_.kind == CollectiveKind::kReduceScatter;
    const bool blocks_in =
        op_.kind == CollectiveKind::kReduceScatter || (op_.kind == CollectiveKind::kAllToAll && !op_.block_per_operand);
    const bool blocks_out =
        op_.kind == CollectiveKind::kAllGather || (op_.kind == CollectiveKind::kAllToAll && !op_.block_per_operand);
    if (op_.kind == CollectiveKind::kAllToAll && op_.block_per_operand && first.size() != size()) {
      return InvalidArgument(Name() + " must have an operand for each of its " + std::to_string(size()) +
                             " members, got " + std::to_string(first.size()));
    }
    for (size_t k = 0; k < first.size(); ++k) {
      const CollectiveOperand& operand = first[k];
      const auto element = static_cast<uint64_t>(DTypeBytes(operand.dtype));
      const uint64_t block = operand.input.size() / (blocks_in ? size() : 1);
      const uint64_t outer = operand.outer < 1 ? 1 : static_cast<uint64_t>(operand.outer);
      // Divides, because outer * element may wrap.
      const bool rows_fit = element > 0 && block % element == 0 && block / element % outer == 0;
      if (!rows_fit || operand.outer < 0 || block * (blocks_in ? size() : 1) != operand.input.size() ||
          block * (blocks_out ? size() : 1) != operand.output.size()) {
        return InvalidArgument(Name() + ", operand " + std::to_string(k) + ": input, rows and output must fit " +
                               std::to_string(size()) + " members, got " + std::to_string(operand.input.size()) +
                               " bytes of " + std::string(DTypeName(operand.dtype)) + ", " +
                               std::to_string(operand.outer) + " rows and " + std::to_string(operand.output.size()) +
                               " bytes");
      }
      if (reduces) PW_RETURN_IF_ERROR(FindReduction(operand.dtype, op_.reduction).status().WithPrefix(Name()));
    }
    for (const LocalPart& part : parts_) {
      bool same = part.operands.size() == first.size();
      for (size_t k = 0; same && k < first.size(); ++k) {
        const CollectiveOperand& a = part.operands[k];
        same = a.dtype == first[k].dtype && a.outer == first[k].outer && a.input.size() == first[k].input.size() &&
               a.output.size() == first[k].output.size();
      }
      if (!same) return Internal(Name() + ": every member must bring operands of the same types, and they differ");
    }
    plan_.reduces = reduces;
    plan_.reduction = op_.reduction;
    return OkStatus();
  }

  Blocks BlocksOf(size_t operand) const {
    const CollectiveOperand& first = parts_[0].operands[operand];
    const bool split = op_.kind == CollectiveKind::kReduceScatter || op_.kind == CollectiveKind::kAllToAll;
    const uint64_t outer = first.outer < 1 ? 1 : static_cast<uint64_t>(first.outer);
    return {outer, first.input.size() / (split ? size() : 1) / outer};
  }

  void AllReduce() {
    for (const LocalPart& part : parts_) {
      Stream& input = plan_.inputs.emplace_back();
      Stream& result = plan_.results.emplace_back();
      for (const CollectiveOperand& operand : part.operands) {
        input.Add(operand.input.data(), 1, operand.input.size(), operand.input.size(), operand.dtype);
        result.Add(operand.output.data(), 1, operand.output.size(), operand.output.size(), operand.dtype);
      }
    }
    const uint64_t bytes = plan_.inputs[0].size();
    const size_t hosts = layout_.hosts.size();
    const bool one_hop = ChooseAllReduce(bytes, hosts) == AllReduceWay::kOneHop;
    plan_.hold = one_hop;
    plan_.gathers = !one_hop;
    plan_.reduced = one_hop ? Share{0, bytes} : ShareOf(bytes, layout_.own, hosts);
    for (size_t p = 0; p < plan_.peers.size(); ++p) {
      plan_.peers[p].sends_inputs = true;
      plan_.peers[p].send = one_hop ? Share{0, bytes} : ShareOf(bytes, HostOf(p), hosts);
      plan_.peers[p].receive = plan_.reduced;
      if (!one_hop) plan_.shares.push_back(plan_.peers[p].send);
    }
  }

  // The blocks of `positions` in one member's input.
  Stream BlocksFor(const LocalPart& part, const std::vector<uint32_t>& positions) const {
    Stream stream;
    for (size_t k = 0; k < part.operands.size(); ++k) {
      const Blocks blocks = BlocksOf(k);
      for (const uint32_t position : positions) {
        stream.Add(part.operands[k].input.data() + position * blocks.row_bytes, blocks.outer, blocks.row_bytes,
                   size() * blocks.row_bytes, part.operands[k].dtype);
      }
    }
    return stream;
  }

  void ReduceScatter() {
    for (const LocalPart& part : parts_) plan_.own.push_back(BlocksFor(part, layout_.local().positions));
    Stream& result = plan_.results.emplace_back();
    for (size_t k = 0; k < parts_[0].operands.size(); ++k) {
      const Blocks blocks = BlocksOf(k);
      for (const LocalPart& part : parts_) {
        result.Add(part.operands[k].output.data(), blocks.outer, blocks.row_bytes, blocks.row_bytes,
                   part.operands[k].dtype);
      }
    }
    plan_.reduced = {0, result.size()};
    for (size_t p = 0; p < plan_.peers.size(); ++p) {
      PeerPlan& peer = plan_.peers[p];
      for (const LocalPart& part : parts_) peer.sources.push_back(BlocksFor(part, PeerPositions(p)));
      peer.send = {0, peer.sources[0].size()};
      peer.receive = plan_.reduced;
    }
  }

  void AllGather() {
    // Of one host's members: in `part`'s output, or, with no part, the inputs of this host's members.
    const auto stream_of = [&](const std::vector<uint32_t>& positions, const LocalPart* part) {
      Stream stream;
      for (size_t k = 0; k < parts_[0].operands.size(); ++k) {
        const Blocks blocks = BlocksOf(k);
        const DType dtype = parts_[0].operands[k].dtype;
        for (size_t i = 0; i < positions.size(); ++i) {
          if (part == nullptr) {
            stream.Add(parts_[i].operands[k].input.data(), blocks.outer, blocks.row_bytes, blocks.row_bytes, dtype);
          } else {
            stream.Add(part->operands[k].output.data() + positions[i] * blocks.row_bytes, blocks.outer,
                       blocks.row_bytes, size() * blocks.row_bytes, dtype);
          }
        }
      }
      return stream;
    };
    const Stream inputs = stream_of(layout_.local().positions, nullptr);
    for (size_t p = 0; p < plan_.peers.size(); ++p) {
      PeerPlan& peer = plan_.peers[p];
      peer.sources.push_back(inputs);
      for (const LocalPart& part : parts_) peer.targets.push_back(stream_of(PeerPositions(p), &part));
      peer.send = {0, inputs.size()};
      peer.receive = {0, peer.targets[0].size()};
    }
    for (const LocalPart& part : parts_) {
      plan_.copies.emplace_back(inputs, stream_of(layout_.local().positions, &part));
    }
  }

  // Inputs as they were on arrival: what comes early must not overwrite what has not been sent yet.
  const std::byte* InputOf(size_t part, size_t operand) {
    if (kept_.empty()) {
      kept_.resize(parts_.size());
      for (size_t i = 0; i < parts_.size(); ++i) {
        for (const CollectiveOperand& each : parts_[i].operands) {
          const std::byte* data = each.input.data();
          if (data == each.output.data() && !each.input.empty()) {
            plan_.kept.push_back(std::make_unique_for_overwrite<std::byte[]>(each.input.size()));
            std::memcpy(plan_.kept.back().get(), data, each.input.size());
            data = plan_.kept.back().get();
          }
          kept_[i].push_back(data);
        }
      }
    }
    return kept_[part][operand];
  }

  // Adds the block that the member at `source` has for the one at `target` to a stream: from the input of local part
  // `from`, or to the output of local part `to`.
  void AddBlock(Stream* stream, size_t k, std::optional<size_t> from, std::optional<size_t> to, uint32_t source,
                uint32_t target) {
    const auto& operands = parts_[0].operands;
    if (op_.block_per_operand) {
      // Operand k of the sender goes to position k; it arrives as the operand numbered by the sender.
      const uint64_t bytes = operands[k].input.size();
      if (k != target) return;
      const std::byte* data = from ? InputOf(*from, target) : parts_[*to].operands[source].output.data();
      stream->Add(data, 1, bytes, bytes, operands[k].dtype);
      return;
    }
    const Blocks blocks = BlocksOf(k);
    const std::byte* data = from ? InputOf(*from, k) + target * blocks.row_bytes
                                 : parts_[*to].operands[k].output.data() + source * blocks.row_bytes;
    stream->Add(data, blocks.outer, blocks.row_bytes, size() * blocks.row_bytes, operands[k].dtype);
  }

  void AllToAll() {
    const auto& local = layout_.local().positions;
    const size_t operands = parts_[0].operands.size();
    for (size_t p = 0; p < plan_.peers.size(); ++p) {
      PeerPlan& peer = plan_.peers[p];
      Stream& source = peer.sources.emplace_back();
      Stream& target = peer.targets.emplace_back();
      for (size_t k = 0; k < operands; ++k) {
        for (size_t i = 0; i < local.size(); ++i) {
          for (const uint32_t to : PeerPositions(p)) AddBlock(&source, k, i, {}, local[i], to);
        }
        for (const uint32_t from : PeerPositions(p)) {
          for (size_t i = 0; i < local.size(); ++i) AddBlock(&target, k, {}, i, from, local[i]);
        }
      }
      peer.send = {0, source.size()};
      peer.receive = {0, target.size()};
    }
    Stream from, to;
    for (size_t k = 0; k < operands; ++k) {
      for (size_t i = 0; i < local.size(); ++i) {
        for (size_t j = 0; j < local.size(); ++j) {
          AddBlock(&from, k, i, {}, local[i], local[j]);
          AddBlock(&to, k, {}, j, local[i], local[j]);
        }
      }
    }
    plan_.copies.emplace_back(std::move(from), std::move(to));
  }

  void Permute() {
    const auto& local = layout_.local().positions;
    const auto local_index = [&](uint32_t shard) -> std::optional<size_t> {
      const auto at = std::lower_bound(local.begin(), local.end(), shard);
      if (at == local.end() || *at != shard) return std::nullopt;
      return static_cast<size_t>(at - local.begin());
    };
    const auto peer_of = [&](uint32_t shard) -> PeerPlan* {
      if (shard >= layout_.places.size()) return nullptr;
      for (PeerPlan& peer : plan_.peers) {
        if (peer.host == layout_.places[shard].host) return &peer;
      }
      return nullptr;
    };
    for (PeerPlan& peer : plan_.peers) {
      peer.sources.emplace_back();
      peer.targets.emplace_back();
    }
    std::vector<bool> reached(local.size());
    Stream copy_from, copy_to;
    for (const auto& [from, to] : op_.pairs) {
      const auto source = local_index(from);
      const auto target = local_index(to);
      if (target) reached[*target] = true;
      PeerPlan* const peer = source && target ? nullptr : source ? peer_of(to) : target ? peer_of(from) : nullptr;
      for (size_t k = 0; k < parts_[0].operands.size(); ++k) {
        const CollectiveOperand& operand = parts_[0].operands[k];
        const uint64_t bytes = operand.input.size();
        if (source) {
          Stream* stream = target ? &copy_from : peer != nullptr ? &peer->sources[0] : nullptr;
          if (stream != nullptr) stream->Add(InputOf(*source, k), 1, bytes, bytes, operand.dtype);
        }
        if (target) {
          Stream* stream = source ? &copy_to : peer != nullptr ? &peer->targets[0] : nullptr;
          if (stream != nullptr) {
            stream->Add(parts_[*target].operands[k].output.data(), 1, bytes, bytes, operand.dtype);
          }
        }
      }
    }
    for (PeerPlan& peer : plan_.peers) {
      peer.send = {0, peer.sources[0].size()};
      peer.receive = {0, peer.targets[0].size()};
    }
    plan_.copies.emplace_back(std::move(copy_from), std::move(copy_to));
    for (size_t i = 0; i < local.size(); ++i) {
      for (const CollectiveOperand& operand : parts_[i].operands) {
        if (!reached[i]) plan_.zeros.push_back(operand.output);
      }
    }
  }

  const CollectiveOp& op_;
  const Layout& layout_;
  const std::span<const LocalPart> parts_;
  ExchangePlan& plan_;
  std::vector<std::vector<const std::byte*>> kept_;  // by part and operand
};

}  // namespace

uint64_t ExchangePlan::BytesToSend() const {
  uint64_t bytes = 0;
  for (const PeerPlan& peer : peers) {
    bytes += peer.send.end - peer.send.begin;
    if (gathers) bytes += reduced.end - reduced.begin;
  }
  return bytes;
}

Status BuildPlan(const CollectiveOp& op, const Layout& layout, std::span<const LocalPart> parts, ExchangePlan* plan) {
  return Builder(op, layout, parts, plan).Build();
}

}  // namespace pathways::collective
