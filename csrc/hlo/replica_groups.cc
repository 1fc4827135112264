#include "csrc/hlo/replica_groups.h"

#include <algorithm>
#include <array>
#include <utility>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

using Groups = ReplicaGroups;
constexpr size_t kMaxRank = 16;  // of iota replica groups

bool Append(const ProtoField& field, std::vector<int64_t>* out) {
  return ForEachInt64(field, [out](int64_t value) { out->push_back(value); });
}

Status Beyond(int64_t id, uint32_t devices) {
  return InvalidArgument("expected ids from 0 to " + std::to_string(int64_t{devices} - 1) + ", got " +
                         std::to_string(id));
}

Result<std::vector<uint32_t>> ToIds(const std::vector<int64_t>& ids, uint32_t devices) {
  std::vector<uint32_t> out;
  for (const int64_t id : ids) {
    if (id < 0 || id >= int64_t{devices}) return Beyond(id, devices);
    out.push_back(static_cast<uint32_t>(id));
  }
  return out;
}

// ReplicaGroup.replica_ids
Status ReadGroup(std::string_view bytes, uint32_t devices, Groups* out) {
  std::vector<int64_t> ids;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.number == 1 && !Append(field, &ids)) return MalformedModule("a replica group");
  }
  if (!reader.ok()) return MalformedModule("a replica group");
  PW_ASSIGN_OR_RETURN(std::vector<uint32_t> group, ToIds(ids, devices));
  out->push_back(std::move(group));
  return OkStatus();
}

// The numbers from 0 on, arranged as an array of shape `dims`, transposed, and cut into groups.
Status CutIntoGroups(const std::vector<int64_t>& dims, const std::vector<int64_t>& transpose, int64_t group_size,
                     uint32_t devices, Groups* out) {
  const size_t rank = dims.size();
  if (rank > kMaxRank || transpose.size() != rank || group_size < 1) return MalformedModule("replica groups");
  std::vector<int64_t> sorted = transpose;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < rank; ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return MalformedModule("replica groups");
  }
  std::array<int64_t, kMaxRank> strides{};
  int64_t count = 1;
  for (size_t i = rank; i-- > 0;) {
    if (dims[i] < 1) return MalformedModule("replica groups");
    if (dims[i] > int64_t{devices}) return Beyond(dims[i] - 1, devices);
    strides[i] = count;
    count *= dims[i];
    if (count > int64_t{devices}) return Beyond(count - 1, devices);
  }
  if (count % group_size != 0) return MalformedModule("replica groups");
  for (int64_t at = 0; at < count; ++at) {
    int64_t number = 0, rest = at;  // `at` counts in the transposed array
    for (size_t i = rank; i-- > 0;) {
      const auto axis = static_cast<size_t>(transpose[i]);
      number += rest % dims[axis] * strides[axis];
      rest /= dims[axis];
    }
    if (at % group_size == 0) out->emplace_back();
    out->back().push_back(static_cast<uint32_t>(number));
  }
  return OkStatus();
}

// IotaReplicaGroupListProto
Status ReadIota(std::string_view bytes, uint32_t devices, Groups* out) {
  int64_t groups = 0, group_size = 0;
  std::vector<int64_t> reshape, transpose;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kVarint)) groups = field.as_int64();
    if (field.is(2, WireType::kVarint)) group_size = field.as_int64();
    if (field.number == 3) ok = ok && Append(field, &reshape);
    if (field.number == 4) ok = ok && Append(field, &transpose);
  }
  if (!ok || !reader.ok()) return MalformedModule("replica groups");
  PW_RETURN_IF_ERROR(CutIntoGroups(reshape, transpose, group_size, devices, out));
  return static_cast<int64_t>(out->size()) == groups ? OkStatus() : MalformedModule("replica groups");
}

// A mesh's axis, or a factor of it.
struct AxisPart {
  int64_t axis = 0;
  int64_t before = 1;  // product of the parts of the axis before it
  int64_t size = 0;    // 0: the whole axis
};

// AxisRefProto, with its SubAxis
bool ReadAxisPart(std::string_view bytes, AxisPart* out) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kVarint)) out->axis = field.as_int64();
    if (!field.is(2, WireType::kBytes)) continue;
    ProtoReader part(field.bytes);
    ProtoField number;
    while (part.Next(&number)) {
      if (number.is(1, WireType::kVarint)) out->before = number.as_int64();
      if (number.is(2, WireType::kVarint)) out->size = number.as_int64();
    }
    if (!part.ok()) return false;
  }
  return reader.ok();
}

// MeshProto: sizes of its axes, and the ids of its devices when they are not in order.
Status ReadMesh(std::string_view bytes, std::vector<int64_t>* sizes, std::vector<int64_t>* ids) {
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) {
      PW_ASSIGN_OR_RETURN(const int64_t size, ReadId(field.bytes, 2));
      sizes->push_back(size);
    } else if (field.number == 2) {
      ok = ok && Append(field, ids);
    } else {
      return Unimplemented("collectives over a mesh in a form newer than this version knows");
    }
  }
  return reader.ok() && ok ? OkStatus() : MalformedModule("a mesh");
}

// The lengths into which the axis is cut by the parts that are named of it; empty when they do not fit.
std::vector<int64_t> CutAxis(int64_t axis, int64_t length, const std::vector<AxisPart>& named) {
  std::vector<int64_t> cuts = {1, length};
  for (const AxisPart& part : named) {
    if (part.axis != axis || part.size == 0) continue;
    cuts.push_back(part.before);
    cuts.push_back(part.before * part.size);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i - 1] < 1 || cuts[i] % cuts[i - 1] != 0) return {};
    lengths.push_back(cuts[i] / cuts[i - 1]);
  }
  if (lengths.empty()) lengths.push_back(1);
  return cuts.back() == length || length == 1 ? lengths : std::vector<int64_t>();
}

// MeshAxesReplicaGroupListProto: the devices that differ only along the named axes are a group, in the axes' order.
Status ReadMeshAxes(std::string_view bytes, uint32_t devices, Groups* out) {
  std::vector<int64_t> sizes, ids;
  std::vector<AxisPart> named;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadMesh(field.bytes, &sizes, &ids));
    if (!field.is(2, WireType::kBytes)) continue;
    if (!ReadAxisPart(field.bytes, &named.emplace_back())) return MalformedModule("an axis");
  }
  std::vector<int64_t> dims, transpose, inside(named.size(), -1);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t before = 1;
    for (const int64_t length : CutAxis(static_cast<int64_t>(axis), sizes[axis], named)) {
      bool in_group = false;
      for (size_t i = 0; i < named.size(); ++i) {
        const int64_t whole = named[i].size == 0 ? sizes[axis] : named[i].size;
        if (named[i].axis != static_cast<int64_t>(axis) || named[i].before != before || whole != length) continue;
        inside[i] = static_cast<int64_t>(dims.size());
        in_group = true;
      }
      if (!in_group) transpose.push_back(static_cast<int64_t>(dims.size()));
      dims.push_back(length);
      before *= length;
    }
  }
  int64_t group_size = 1;
  for (const int64_t dim : inside) {
    if (dim < 0) return MalformedModule("axes of the mesh");
    transpose.push_back(dim);
    group_size *= dims[static_cast<size_t>(dim)];
  }
  if (!reader.ok()) return MalformedModule("mesh axes");
  PW_RETURN_IF_ERROR(CutIntoGroups(dims, transpose, group_size, devices, out));
  if (ids.empty()) return OkStatus();
  PW_ASSIGN_OR_RETURN(const std::vector<uint32_t> in_order, ToIds(ids, devices));
  for (auto& group : *out) {
    for (uint32_t& member : group) {
      if (member >= in_order.size()) return MalformedModule("the devices of a mesh");
      member = in_order[member];
    }
  }
  return OkStatus();
}

// CollectiveDeviceListProto
Status ReadDeviceList(std::string_view bytes, uint32_t devices, Groups* out) {
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadGroup(field.bytes, devices, out));
    if (field.is(2, WireType::kBytes)) PW_RETURN_IF_ERROR(ReadIota(field.bytes, devices, out));
    if (field.number > 2) return Unimplemented("collectives with groups in a form newer than this version knows");
  }
  return reader.ok() ? OkStatus() : MalformedModule("a list of devices");
}

}  // namespace

Result<CollectiveFields> ReadCollectiveFields(std::string_view bytes, uint32_t devices) {
  CollectiveFields out;
  ReplicaGroups old_groups;
  ProtoReader reader(bytes);
  ProtoField field;
  bool ok = true;
  while (reader.Next(&field)) {
    switch (field.number) {
      case instruction_field::kDimensions:
        ok = ok && Append(field, &out.dimensions);
        break;
      case instruction_field::kOperandIds:
        ok = ok && Append(field, &out.operands);
        break;
      case instruction_field::kCalledComputationIds:
        ok = ok && Append(field, &out.called);
        break;
      case instruction_field::kChannelId:
        out.has_channel = field.as_int64() > 0;
        break;
      case instruction_field::kUseGlobalDeviceIds:
        out.global_ids = field.as_bool();
        break;
      case instruction_field::kReplicaGroups:
        PW_RETURN_IF_ERROR(ReadGroup(field.bytes, devices, &old_groups));
        break;
      case instruction_field::kCollectiveDeviceList:
        PW_RETURN_IF_ERROR(ReadDeviceList(field.bytes, devices, &out.groups));
        break;
      case instruction_field::kIotaDeviceList:
        PW_RETURN_IF_ERROR(ReadIota(field.bytes, devices, &out.groups));
        break;
      case instruction_field::kMeshAxesDeviceList:
        PW_RETURN_IF_ERROR(ReadMeshAxes(field.bytes, devices, &out.groups));
        break;
      case instruction_field::kSourceTargetPairs: {
        int64_t source = 0, target = 0;
        ProtoReader pair(field.bytes);
        ProtoField part;
        while (pair.Next(&part)) {
          if (part.is(1, WireType::kVarint)) source = part.as_int64();
          if (part.is(2, WireType::kVarint)) target = part.as_int64();
        }
        PW_ASSIGN_OR_RETURN(const auto ends, ToIds({source, target}, devices));
        out.pairs.emplace_back(ends[0], ends[1]);
        ok = ok && pair.ok();
        break;
      }
      default:
        // To take groups of an unknown form for no groups would mean all devices.
        if (field.number > instruction_field::kMeshAxesDeviceList) {
          return Unimplemented("collectives with a field newer than this version knows");
        }
        break;
    }
  }
  if (!reader.ok() || !ok) return MalformedModule("a collective");
  if (out.groups.empty()) out.groups = std::move(old_groups);
  return out;
}

}  // namespace pathways::hlo
