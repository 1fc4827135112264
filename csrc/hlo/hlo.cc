#include "csrc/hlo/hlo.h"

#include <algorithm>
#include <array>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"

namespace pathways::hlo {
namespace {

// What crosses devices. A name stands for itself and for its -start and -done forms.
constexpr std::array<std::string_view, 11> kCrossDevice = {
    "all-gather",   "all-reduce",        "all-to-all", "collective-broadcast", "collective-permute",
    "partition-id", "ragged-all-to-all", "recv",       "reduce-scatter",       "replica-id",
    "send"};

bool IsCrossDevice(std::string_view opcode) {
  for (const std::string_view suffix : {"-start", "-done"}) {
    if (opcode.ends_with(suffix)) opcode.remove_suffix(suffix.size());
  }
  return std::find(kCrossDevice.begin(), kCrossDevice.end(), opcode) != kCrossDevice.end();
}

Result<TensorType> ToTensorType(const Shape& shape, const std::string& what) {
  if (shape.is_tuple()) return Unimplemented("expected an array as " + what + ", got a nested tuple");
  TensorType type;
  type.dtype = DTypeFromXlaPrimitive(shape.element_type);
  type.dims = shape.dims;
  if (type.dtype == DType::kInvalid) {
    return Unimplemented("expected an array of a supported element type as " + what + ", got XLA element type " +
                         std::to_string(shape.element_type));
  }
  if (shape.dynamic) return Unimplemented("expected a static shape as " + what + ", got dynamic " + type.ToString());
  PW_RETURN_IF_ERROR(type.Validate().WithPrefix(what));
  return type;
}

// Appends the shape, or its elements if it is a tuple.
Status Flatten(const Shape& shape, const std::string& what, std::vector<TensorType>* out) {
  if (!shape.is_tuple()) {
    PW_ASSIGN_OR_RETURN(TensorType type, ToTensorType(shape, what));
    out->push_back(std::move(type));
    return OkStatus();
  }
  for (size_t i = 0; i < shape.elements.size(); ++i) {
    PW_ASSIGN_OR_RETURN(const Shape element, ReadShape(shape.elements[i]));
    PW_ASSIGN_OR_RETURN(TensorType type, ToTensorType(element, what + " " + std::to_string(i)));
    out->push_back(std::move(type));
  }
  return OkStatus();
}

Status ReadProgramShape(std::string_view bytes, HloModuleInfo* out) {
  std::vector<Shape> parameters;
  bool has_result = false;
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) {  // ProgramShapeProto.parameters
      PW_ASSIGN_OR_RETURN(Shape shape, ReadShape(field.bytes));
      parameters.push_back(std::move(shape));
    } else if (field.is(2, WireType::kBytes)) {  // .result
      PW_ASSIGN_OR_RETURN(const Shape shape, ReadShape(field.bytes));
      out->results.clear();
      out->result_is_tuple = shape.is_tuple();
      has_result = true;
      PW_RETURN_IF_ERROR(Flatten(shape, "result", &out->results));
    }
  }
  if (!reader.ok() || !has_result) return MalformedModule("an entry program shape");
  out->parameters_are_tupled = parameters.size() == 1 && parameters[0].is_tuple();
  if (out->parameters_are_tupled) return Flatten(parameters[0], "parameter", &out->parameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    PW_ASSIGN_OR_RETURN(TensorType type, ToTensorType(parameters[i], "parameter " + std::to_string(i)));
    out->parameters.push_back(std::move(type));
  }
  return OkStatus();
}

// The parameter numbers in the entries of HloInputOutputAliasProto (number 2, index 3) or HloBufferDonorProto (1, 2).
Status ReadParameterNumbers(std::string_view bytes, uint32_t number_field, uint32_t index_field,
                            const HloModuleInfo& module, std::vector<int64_t>* out) {
  ProtoReader reader(bytes);
  ProtoField entry;
  while (reader.Next(&entry)) {
    if (!entry.is(1, WireType::kBytes)) continue;
    int64_t number = 0;
    std::vector<int64_t> index;
    ProtoReader fields(entry.bytes);
    ProtoField field;
    bool ok = true;
    while (fields.Next(&field)) {
      if (field.is(number_field, WireType::kVarint)) number = field.as_int64();
      if (field.number == index_field) {
        ok = ok && ForEachInt64(field, [&index](int64_t step) { index.push_back(step); });
      }
    }
    if (module.parameters_are_tupled && number == 0 && index.size() == 1) {
      number = index[0];
      index.clear();
    }
    const auto count = static_cast<int64_t>(module.parameters.size());
    if (!fields.ok() || !ok || !index.empty() || number < 0 || number >= count) {
      return MalformedModule("aliases of the " + std::to_string(count) + " parameters");
    }
    out->push_back(number);
  }
  if (!reader.ok()) return MalformedModule("aliases");
  std::sort(out->begin(), out->end());
  out->erase(std::unique(out->begin(), out->end()), out->end());
  return OkStatus();
}

// Source lines: instructions name them directly or through the module's table of stack frames.
struct Location {
  std::string file;
  int64_t line = 0;
};

bool IsUserFile(std::string_view file) {
  return file.find("/site-packages/") == std::string_view::npos && file.find("torch_xla/") == std::string_view::npos &&
         !file.starts_with("<frozen");
}

class StackFrames {
 public:
  Status Read(std::string_view bytes) {
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.type != WireType::kBytes) continue;
      if (field.number == 1) files_.push_back(field.bytes);
      if (field.number == 3 && !ReadPair(field.bytes, 1, 3, &locations_)) return MalformedModule("source locations");
      if (field.number == 4 && !ReadPair(field.bytes, 1, 2, &frames_)) return MalformedModule("stack frames");
    }
    return reader.ok() ? OkStatus() : MalformedModule("stack frames");
  }

  // The innermost frame in a user's file, else the innermost; ids count from one. Empty file: unknown.
  Location Find(int64_t frame_id) const {
    Location innermost;
    for (size_t steps = 0; steps < frames_.size(); ++steps) {
      if (frame_id < 1 || frame_id > static_cast<int64_t>(frames_.size())) break;
      const auto [location_id, parent_id] = frames_[static_cast<size_t>(frame_id - 1)];
      Location here = At(location_id);
      if (!here.file.empty() && IsUserFile(here.file)) return here;
      if (innermost.file.empty()) innermost = std::move(here);
      frame_id = parent_id;
    }
    return innermost;
  }

 private:
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;

  static bool ReadPair(std::string_view bytes, uint32_t first, uint32_t second, Pairs* out) {
    auto& pair = out->emplace_back(0, 0);
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(first, WireType::kVarint)) pair.first = field.as_int64();
      if (field.is(second, WireType::kVarint)) pair.second = field.as_int64();
    }
    return reader.ok();
  }

  Location At(int64_t location_id) const {
    if (location_id < 1 || location_id > static_cast<int64_t>(locations_.size())) return {};
    const auto [file_id, line] = locations_[static_cast<size_t>(location_id - 1)];
    if (file_id < 1 || file_id > static_cast<int64_t>(files_.size())) return {};
    return {std::string(files_[static_cast<size_t>(file_id - 1)]), line};
  }

  std::vector<std::string_view> files_;
  Pairs locations_;  // (file id, line)
  Pairs frames_;     // (location id, parent frame id)
};

class InstructionScan {
 public:
  InstructionScan(const StackFrames& frames, HloModuleInfo* out) : frames_(frames), out_(out) {}

  Status Computation(std::string_view bytes) {
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(computation_field::kInstructions, WireType::kBytes)) PW_RETURN_IF_ERROR(Instruction(field.bytes));
    }
    return reader.ok() ? OkStatus() : MalformedModule("a computation");
  }

  // The first user's line, else the first line at all.
  const Location& location() const { return user_.file.empty() ? any_ : user_; }

 private:
  Status Instruction(std::string_view bytes) {
    std::string_view opcode, metadata;
    bool to_host = false;
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(instruction_field::kOpcode, WireType::kBytes)) opcode = field.bytes;
      if (field.is(instruction_field::kMetadata, WireType::kBytes)) metadata = field.bytes;
      if (field.is(instruction_field::kIsHostTransfer, WireType::kVarint)) to_host = field.as_bool();
    }
    if (!reader.ok()) return MalformedModule("an instruction");
    if (!to_host && IsCrossDevice(opcode)) {
      auto& seen = out_->cross_device_opcodes;
      if (std::find(seen.begin(), seen.end(), opcode) == seen.end()) seen.emplace_back(opcode);
      out_->has_cross_device_instructions = true;
    }
    return user_.file.empty() && !metadata.empty() ? Metadata(metadata) : OkStatus();
  }

  Status Metadata(std::string_view bytes) {
    Location here;
    int64_t frame_id = 0;
    ProtoReader reader(bytes);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(3, WireType::kBytes)) here.file = field.bytes;  // OpMetadata.source_file
      if (field.is(4, WireType::kVarint)) here.line = field.as_int64();
      if (field.is(15, WireType::kVarint)) frame_id = field.as_int64();
    }
    if (!reader.ok()) return MalformedModule("metadata");
    if (frame_id != 0) {
      if (Location framed = frames_.Find(frame_id); !framed.file.empty()) here = std::move(framed);
    }
    if (here.file.empty()) return OkStatus();
    if (IsUserFile(here.file)) {
      user_ = std::move(here);
    } else if (any_.file.empty()) {
      any_ = std::move(here);
    }
    return OkStatus();
  }

  const StackFrames& frames_;
  HloModuleInfo* const out_;
  Location user_;
  Location any_;
};

// The top level of the module; parts still encoded.
struct ModuleParts {
  std::string_view program_shape, alias, donor, frames;
  int64_t entry_id = 0;
  std::vector<std::string_view> computations;
};

Status ReadTopLevel(std::string_view module, ModuleParts* parts, HloModuleInfo* out) {
  ProtoReader reader(module);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(module_field::kEntryId, WireType::kVarint)) parts->entry_id = field.as_int64();
    if (field.type != WireType::kBytes) continue;
    if (field.number == module_field::kName) out->name = field.bytes;
    if (field.number == module_field::kOutputSharding) out->output_sharding = field.bytes;
    if (field.number == module_field::kComputations) parts->computations.push_back(field.bytes);
    if (field.number == module_field::kHostProgramShape) parts->program_shape = field.bytes;
    if (field.number == module_field::kAlias) parts->alias = field.bytes;
    if (field.number == module_field::kBufferDonor) parts->donor = field.bytes;
    if (field.number == module_field::kStackFrameIndex) parts->frames = field.bytes;
  }
  return reader.ok() ? OkStatus() : MalformedModule("fields");
}

// The entry computation must be there; its shape stands in when the module does not repeat it.
Status FindEntry(ModuleParts* parts) {
  for (const std::string_view computation : parts->computations) {
    int64_t id = 0;
    std::string_view shape;
    ProtoReader reader(computation);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.is(computation_field::kId, WireType::kVarint)) id = field.as_int64();
      if (field.is(computation_field::kProgramShape, WireType::kBytes)) shape = field.bytes;
    }
    if (!reader.ok()) return MalformedModule("a computation");
    if (id != parts->entry_id) continue;
    if (parts->program_shape.empty()) parts->program_shape = shape;
    return OkStatus();
  }
  return MalformedModule("the entry computation");
}

}  // namespace

Result<HloModuleInfo> ReadHloModule(std::string_view module) {
  HloModuleInfo out;
  ModuleParts parts;
  PW_RETURN_IF_ERROR(ReadTopLevel(module, &parts, &out));
  PW_RETURN_IF_ERROR(FindEntry(&parts));
  PW_RETURN_IF_ERROR(ReadProgramShape(parts.program_shape, &out));
  PW_RETURN_IF_ERROR(ReadParameterNumbers(parts.alias, 2, 3, out, &out.aliased_parameters));
  PW_RETURN_IF_ERROR(ReadParameterNumbers(parts.donor, 1, 2, out, &out.donated_parameters));
  StackFrames frames;
  PW_RETURN_IF_ERROR(frames.Read(parts.frames));
  InstructionScan scan(frames, &out);
  for (const std::string_view computation : parts.computations) PW_RETURN_IF_ERROR(scan.Computation(computation));
  if (!scan.location().file.empty()) {
    out.source_location = scan.location().file + ":" + std::to_string(scan.location().line);
  }
  return out;
}

Result<std::string_view> HloModuleOfProgram(std::string_view format, std::string_view code) {
  if (format == "hlo") return code;
  if (format != "hlo_with_config") {
    return Unimplemented("expected a program in format hlo or hlo_with_config, got " + std::string(format));
  }
  ProtoReader reader(code);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) return field.bytes;  // HloModuleProtoWithConfig.hlo_module
  }
  return MalformedModule("a module with its configuration");
}

}  // namespace pathways::hlo
