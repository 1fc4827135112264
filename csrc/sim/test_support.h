// Modules for tests: HLO protos with nothing in them but what a simulated compiler reads.
#ifndef PTPATHWAYS_SIM_TEST_SUPPORT_H_
#define PTPATHWAYS_SIM_TEST_SUPPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/base/tensor_type.h"

namespace pathways::sim {

inline std::string ShapeProto(const TensorType& type) {
  ProtoWriter shape;
  shape.Int64(2, XlaPrimitiveFromDType(type.dtype));
  for (const int64_t dim : type.dims) shape.Int64(3, dim);
  return std::move(shape).Take();
}

// OpSharding of type OTHER with these tiles.
inline std::string TiledSharding(const std::vector<int64_t>& tiles) {
  ProtoWriter sharding;
  sharding.Int64(1, 3);
  for (const int64_t tile : tiles) sharding.Int64(3, tile);
  return std::move(sharding).Take();
}

struct ModuleSpec {
  std::vector<TensorType> parameters;
  TensorType result;
  std::string opcode = "add";               // of the root
  std::string result_sharding;              // OpSharding bytes
  std::vector<std::string> param_sharding;  // by parameter
};

inline std::shared_ptr<const std::string> MakeModule(const ModuleSpec& spec) {
  ProtoWriter program_shape, computation;
  computation.Bytes(1, "main");
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    program_shape.Bytes(1, ShapeProto(spec.parameters[i]));
    ProtoWriter parameter;
    parameter.Bytes(1, "p" + std::to_string(i));
    parameter.Bytes(2, "parameter");
    parameter.Bytes(3, ShapeProto(spec.parameters[i]));
    parameter.Int64(9, static_cast<int64_t>(i));
    parameter.Int64(35, static_cast<int64_t>(i) + 1);
    if (i < spec.param_sharding.size()) parameter.Bytes(40, spec.param_sharding[i]);
    computation.Bytes(2, parameter.bytes());
  }
  program_shape.Bytes(2, ShapeProto(spec.result));
  ProtoWriter root;
  root.Bytes(1, "root");
  root.Bytes(2, spec.opcode);
  root.Bytes(3, ShapeProto(spec.result));
  root.Int64(35, 100);
  if (!spec.result_sharding.empty()) root.Bytes(40, spec.result_sharding);
  computation.Bytes(2, root.bytes());
  computation.Bytes(4, program_shape.bytes());
  computation.Int64(5, 7);
  computation.Int64(6, 100);
  ProtoWriter module;
  module.Bytes(1, "test");
  module.Bytes(3, computation.bytes());
  module.Bytes(4, program_shape.bytes());
  module.Int64(6, 7);
  return std::make_shared<const std::string>(std::move(module).Take());
}

// f32[] -> f32[]
inline std::shared_ptr<const std::string> ScalarModule() {
  return MakeModule({{{DType::kF32, {}}}, {DType::kF32, {}}, "negate", "", {}});
}

}  // namespace pathways::sim

#endif  // PTPATHWAYS_SIM_TEST_SUPPORT_H_
