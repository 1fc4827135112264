// Writes small HLO modules for tests, of this room and of those above it, with the public field numbers of hlo.proto
// and xla_data.proto.
//
// Ownership: plain values. Threads: the tests'.
#ifndef PTPATHWAYS_HLO_TEST_HLO_H_
#define PTPATHWAYS_HLO_TEST_HLO_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/literal.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {

inline std::string ShapeProto(int64_t element_type, const std::vector<int64_t>& dims) {
  ProtoWriter out, layout;
  out.Int64(2, element_type);
  for (const int64_t dim : dims) out.Int64(3, dim);
  for (size_t i = dims.size(); i-- > 0;) layout.Int64(1, static_cast<int64_t>(i));
  out.Bytes(5, layout.bytes());
  for (size_t i = 0; i < dims.size(); ++i) out.Int64(6, 0);
  return std::move(out).Take();
}

inline std::string F32(const std::vector<int64_t>& dims) { return ShapeProto(11, dims); }

// Fields of a constant, of a slice and of a pad.
inline std::string FloatConstant(float value) {
  ProtoWriter literal, fields;
  literal.Bytes(1, F32({}));
  literal.Bytes(8, std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
  fields.Bytes(8, literal.bytes());
  return std::move(fields).Take();
}

inline std::string IndexConstant(int64_t value) {
  ProtoWriter fields;
  fields.Bytes(8, WholeLiteral(DType::kS64, value));
  return std::move(fields).Take();
}

inline std::string SliceOf(int64_t start, int64_t limit, int64_t stride = 1) {
  ProtoWriter range, fields;
  range.Int64(1, start);
  range.Int64(2, limit);
  range.Int64(3, stride);
  fields.Bytes(17, range.bytes());
  return std::move(fields).Take();
}

inline std::string PaddingOf(int64_t low, int64_t high) {
  ProtoWriter dimension, config, fields;
  dimension.Int64(1, low);
  dimension.Int64(2, high);
  config.Bytes(1, dimension.bytes());
  fields.Bytes(21, config.bytes());
  return std::move(fields).Take();
}

// Along the first dimension into `parts`, one per partition.
inline std::string SplitSharding(int64_t parts) {
  ProtoWriter out;
  out.Int64(1, 3);
  out.Int64(3, parts);
  for (int64_t i = 0; i < parts; ++i) out.Int64(4, i);
  return std::move(out).Take();
}

// A module of one computation, and of an operation on two scalars for reductions, whose id is kReduction.
class HloBuilder {
 public:
  static constexpr int64_t kReduction = 2;

  explicit HloBuilder(std::string reduction = "add") : reduction_(std::move(reduction)) {}

  int64_t Parameter(const std::string& shape) {
    parameters_.push_back(shape);
    ProtoWriter number;
    number.Int64(9, static_cast<int64_t>(parameters_.size()) - 1);
    return Add("parameter", shape, {}, number.bytes());
  }
  int64_t Add(const std::string& opcode, const std::string& shape, const std::vector<int64_t>& operands,
              const std::string& fields = "") {
    instructions_.Bytes(2, Instruction(++last_id_, opcode, shape, operands, fields));
    root_shape_ = shape;
    return last_id_;
  }
  // Adds a computation, encoded, beside those that are there: an id of its own stands in it.
  void AddComputation(const std::string& encoded) { others_.Bytes(3, encoded); }
  int64_t Zero() { return Add("constant", F32({}), {}, FloatConstant(0)); }
  // The module whose result is the last instruction.
  std::string Build(const std::string& name) const {
    ProtoWriter reduction, entry, module;
    const std::string scalar = F32({});
    for (int64_t i = 0; i < 2; ++i) {
      ProtoWriter number;
      number.Int64(9, i);
      reduction.Bytes(2, Instruction(1001 + i, "parameter", scalar, {}, number.bytes()));
    }
    reduction.Bytes(2, Instruction(1003, reduction_, scalar, {1001, 1002}, ""));
    reduction.Bytes(1, "reduction");
    reduction.Bytes(4, ProgramShape({scalar, scalar}, scalar));
    reduction.Int64(5, kReduction);
    reduction.Int64(6, 1003);
    entry.Bytes(1, "main");
    entry.Raw(instructions_.bytes());
    entry.Bytes(4, ProgramShape(parameters_, root_shape_));
    entry.Int64(5, 1);
    entry.Int64(6, last_id_);
    module.Bytes(1, name);
    module.Bytes(2, "main");
    module.Bytes(3, reduction.bytes());
    module.Raw(others_.bytes());
    module.Bytes(3, entry.bytes());
    module.Bytes(4, ProgramShape(parameters_, root_shape_));
    module.Int64(5, 1);
    module.Int64(6, 1);
    return std::move(module).Take();
  }

 private:
  static std::string Instruction(int64_t id, const std::string& opcode, const std::string& shape,
                                 const std::vector<int64_t>& operands, const std::string& fields) {
    ProtoWriter out;
    out.Bytes(1, opcode + "." + std::to_string(id));
    out.Bytes(2, opcode);
    out.Bytes(3, shape);
    out.Raw(fields);
    out.Int64(35, id);
    for (const int64_t operand : operands) out.Int64(36, operand);
    return std::move(out).Take();
  }
  static std::string ProgramShape(const std::vector<std::string>& parameters, const std::string& result) {
    ProtoWriter out;
    for (const std::string& parameter : parameters) out.Bytes(1, parameter);
    out.Bytes(2, result);
    for (size_t i = 0; i < parameters.size(); ++i) out.Bytes(3, "p" + std::to_string(i));
    return std::move(out).Take();
  }

  const std::string reduction_;
  ProtoWriter instructions_, others_;
  std::vector<std::string> parameters_;
  std::string root_shape_;
  int64_t last_id_ = 0;
};

// Of two f32[8].
inline std::string SumAndDifference() {
  HloBuilder hlo;
  const std::string f32x8 = F32({8});
  const int64_t a = hlo.Parameter(f32x8), b = hlo.Parameter(f32x8);
  const int64_t sum = hlo.Add("add", f32x8, {a, b}), difference = hlo.Add("subtract", f32x8, {a, b});
  hlo.Add("tuple", TupleShape({f32x8, f32x8}), {sum, difference});
  return hlo.Build("sum_and_difference");
}

// A scalar and the number of the partition, added up.
inline std::string WithPartitionId() {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({}));
  const int64_t id = hlo.Add("partition-id", ShapeProto(8, {}), {});
  const int64_t number = hlo.Add("convert", F32({}), {id});
  hlo.Add("add", F32({}), {x, number});
  return hlo.Build("which");
}

// One all-reduce of f32[8] and f32[4].
inline std::string TwoReducedAtOnce() {
  HloBuilder hlo;
  const int64_t x = hlo.Parameter(F32({8})), y = hlo.Parameter(F32({4}));
  ProtoWriter reduction;
  reduction.Int64(38, HloBuilder::kReduction);
  hlo.Add("all-reduce", TupleShape({F32({8}), F32({4})}), {x, y}, std::string(reduction.bytes()));
  return hlo.Build("two");
}

// The maximum or minimum of each column of f32[rows, columns].
inline std::string ExtremeOfColumns(const std::string& opcode, int64_t rows, int64_t columns) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  HloBuilder hlo(opcode);
  const int64_t x = hlo.Parameter(F32({rows, columns}));
  const int64_t none = hlo.Add("constant", F32({}), {}, FloatConstant(opcode == "maximum" ? -kInfinity : kInfinity));
  ProtoWriter fields;
  fields.Int64(14, 0);
  fields.Int64(38, HloBuilder::kReduction);
  hlo.Add("reduce", F32({columns}), {x, none}, std::string(fields.bytes()));
  return hlo.Build("extreme");
}

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_TEST_HLO_H_
