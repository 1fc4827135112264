// Parts of a serialized HloModuleProto that more than one of this room's files reads or writes: field numbers
// (openxla/xla, hlo.proto and xla_data.proto) and the walk over computations and instructions.
//
// Threads: pure functions of bytes; views borrow them. Malformed bytes give INVALID_ARGUMENT.
#ifndef PTPATHWAYS_HLO_PROTO_H_
#define PTPATHWAYS_HLO_PROTO_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"

namespace pathways::hlo {

namespace module_field {
constexpr uint32_t kName = 1, kComputations = 3, kHostProgramShape = 4, kEntryId = 6, kAlias = 8;
constexpr uint32_t kOutputSharding = 12, kParameterShardings = 14, kStackFrameIndex = 17, kBufferDonor = 18;
}  // namespace module_field
namespace computation_field {
constexpr uint32_t kInstructions = 2, kProgramShape = 4, kId = 5, kRootId = 6;
}
namespace program_shape_field {
constexpr uint32_t kParameters = 1, kParameterNames = 3;
}
namespace instruction_field {
constexpr uint32_t kName = 1, kOpcode = 2, kShape = 3, kMetadata = 7, kLiteral = 8, kParameterNumber = 9;
constexpr uint32_t kTupleIndex = 13, kDimensions = 14, kWindow = 15, kConvolutionDimensions = 16, kSliceDimensions = 17;
constexpr uint32_t kDynamicSliceSizes = 20, kPaddingConfig = 21, kGatherDimensions = 33, kGatherSliceSizes = 34;
constexpr uint32_t kChannelId = 26, kCustomCallTarget = 28, kDotDimensions = 30, kId = 35;
constexpr uint32_t kOperandIds = 36, kControlPredecessors = 37, kCalledComputationIds = 38, kSharding = 40,
                   kBackendConfig = 43;
constexpr uint32_t kIsHostTransfer = 47, kReplicaGroups = 49, kFeatureGroups = 50, kPrecision = 51;
constexpr uint32_t kSourceTargetPairs = 52, kConstrainLayout = 56, kOperandShapes = 57, kBatchGroups = 58;
constexpr uint32_t kHasSideEffect = 65, kUseGlobalDeviceIds = 71, kCustomCallApiVersion = 77;
constexpr uint32_t kCollectiveDeviceList = 87, kIotaDeviceList = 92, kMeshAxesDeviceList = 93;
}  // namespace instruction_field
constexpr int64_t kTypedFfi = 4;  // CustomCallApiVersion.API_VERSION_TYPED_FFI
namespace sharding_field {        // OpSharding
constexpr uint32_t kType = 1, kTupleShardings = 5;
constexpr int64_t kTuple = 2, kManual = 4;  // OpSharding.Type
}  // namespace sharding_field
namespace shape_field {
constexpr uint32_t kElementType = 2, kDimensions = 3, kTupleShapes = 4, kLayout = 5, kIsDynamicDimension = 6;
constexpr int64_t kTuple = 13;  // PrimitiveType::TUPLE
}  // namespace shape_field

Status MalformedModule(std::string_view what);

// The fields of an instruction that most edits need; views into its bytes.
struct Instruction {
  std::string_view name, opcode, shape;
  std::optional<std::string_view> sharding;
  int64_t id = 0;
  int64_t parameter_number = 0;
};
Result<Instruction> ReadInstruction(std::string_view bytes);

// An array's or a tuple's.
struct Shape {
  int64_t element_type = 0;
  std::vector<int64_t> dims;
  bool dynamic = false;
  std::vector<std::string_view> elements;  // of a tuple, still encoded

  bool is_tuple() const { return element_type == shape_field::kTuple; }
};

Result<Shape> ReadShape(std::string_view bytes);

// Encoded; an array in row-major order.
std::string ArrayShape(DType dtype, const std::vector<int64_t>& dims);
std::string TupleShape(const std::vector<std::string>& elements);
// The ProgramShapeProto with one parameter more, the last.
std::string WithParameter(std::string_view program_shape, std::string_view shape, std::string_view name);

// The repeated sub-messages numbered `number`.
Result<std::vector<std::string_view>> SubMessages(std::string_view bytes, uint32_t number);

// The last integer numbered `number`, or 0.
Result<int64_t> ReadId(std::string_view bytes, uint32_t number);

// The integers numbered `number`, packed or not.
Result<std::vector<int64_t>> Integers(std::string_view bytes, uint32_t number);

Result<std::string_view> EntryComputation(std::string_view module);

// Adds an instruction to a computation that is written anew. `fields`: what else it has, encoded.
void WriteInstruction(int64_t id, std::string_view name, std::string_view opcode, std::string_view shape,
                      const std::vector<int64_t>& operands, std::string_view fields, ProtoWriter* computation);

// Writes a computation to `out` with each instruction passed through `edit`, which is true where it has written
// something in the instruction's place. The others are carried over.
using InstructionEdit = std::function<Result<bool>(std::string_view instruction)>;
Status EditInstructions(std::string_view computation, const InstructionEdit& edit, ProtoWriter* out);

// The module with every computation passed through `edit`.
using ComputationEdit = std::function<Result<std::string>(std::string_view computation, bool is_entry)>;
Result<std::string> EditComputations(std::string_view module, const ComputationEdit& edit);

}  // namespace pathways::hlo

#endif  // PTPATHWAYS_HLO_PROTO_H_
