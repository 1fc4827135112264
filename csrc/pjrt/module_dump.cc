#include "csrc/pjrt/module_dump.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "csrc/base/proto.h"
#include "csrc/hlo/proto.h"
#include "csrc/pjrt/compile_options.h"

namespace pathways::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartitioning = "spmd-partitioning";  // the pass's name

// A folder that goes with this object.
class ScratchFolder {
 public:
  static Result<std::unique_ptr<ScratchFolder>> Make(const std::string& parent) {
    std::error_code error;
    const fs::path base = parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
    std::string name = (base / "pw-dump-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      return Unavailable("expected to make a scratch folder in '" + base.string() +
                         "': " + (error ? error.message() : std::strerror(errno)));
    }
    return std::unique_ptr<ScratchFolder>(new ScratchFolder(std::move(name)));
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;  // nothing to do about a failing destructor; the folder above is removed with the cluster
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Adds entries to CompileOptionsProto.env_option_overrides, a map of names to OptionOverrideProto.
class Overrides {
 public:
  explicit Overrides(ProtoWriter* out) : out_(out) {}
  void Text(std::string_view name, std::string_view text) {
    ProtoWriter value;
    value.Bytes(1, text);
    Add(name, value);
  }
  void Flag(std::string_view name, bool on) {
    ProtoWriter value;
    value.Bool(2, on);
    Add(name, value);
  }
  void Integer(std::string_view name, int64_t number) {
    ProtoWriter value;
    value.Int64(3, number);
    Add(name, value);
  }

 private:
  void Add(std::string_view name, const ProtoWriter& value) {
    ProtoWriter entry;
    entry.Bytes(1, name);
    entry.Bytes(2, value.bytes());
    out_->Bytes(fields::CompileOptionsProto::env_option_overrides, entry.bytes());
  }
  ProtoWriter* const out_;
};

// The module of the last file whose name has `part` in it. The passes' numbers stand in the names with leading zeros,
// so the last in order of names is the last in time.
Result<std::optional<std::string>> ReadDump(const std::string& folder, std::string_view part) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find(part) != std::string::npos && name.ends_with(".hlo.pb")) found.push_back(entry.path());
  }
  if (error) return Unavailable("cannot read the scratch folder " + folder + ": " + error.message());
  if (found.empty()) return std::optional<std::string>();
  std::ifstream file(*std::max_element(found.begin(), found.end()), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) return std::optional(std::string(field.bytes));  // HloProto.hlo_module
  }
  return DataLoss("expected a module in what the plugin wrote as '" + std::string(part) + "', got none");
}

// An instruction that partitioning carries over and no plugin can compile. What comes after the stage would be thrown
// away, and takes most of the time. Without a side effect it would be removed as dead; with one, only a manual sharding
// is neither refused nor put into a branch of its own.
constexpr std::string_view kEnd = "pathways.end";

Result<std::string> WithEnd(std::string_view module) {
  return hlo::EditComputations(module, [](std::string_view computation, bool is_entry) -> Result<std::string> {
    if (!is_entry) return std::string(computation);
    int64_t last = 0;
    ProtoWriter out, sharding, fields;
    const auto copy = [&last](std::string_view bytes) -> Result<bool> {
      PW_ASSIGN_OR_RETURN(const hlo::Instruction instruction, hlo::ReadInstruction(bytes));
      last = std::max(last, instruction.id);
      return false;
    };
    PW_RETURN_IF_ERROR(hlo::EditInstructions(computation, copy, &out));
    sharding.Int64(hlo::sharding_field::kType, hlo::sharding_field::kManual);
    fields.Bytes(hlo::instruction_field::kCustomCallTarget, kEnd);
    fields.Bytes(hlo::instruction_field::kSharding, sharding.bytes());
    fields.Bool(hlo::instruction_field::kHasSideEffect, true);
    fields.Int64(hlo::instruction_field::kCustomCallApiVersion, hlo::kTypedFfi);
    hlo::WriteInstruction(last + 1, kEnd, "custom-call", hlo::ArrayShape(DType::kF32, {}), {}, fields.bytes(), &out);
    return std::move(out).Take();
  });
}

Result<std::string> WithoutEnd(std::string_view module) {
  return hlo::EditComputations(module, [](std::string_view computation, bool) -> Result<std::string> {
    ProtoWriter out;
    const auto is_end = [](std::string_view bytes) -> Result<bool> {
      ProtoReader reader(bytes);
      ProtoField field;
      while (reader.Next(&field)) {
        if (field.is(hlo::instruction_field::kCustomCallTarget, WireType::kBytes)) return field.bytes == kEnd;
      }
      return false;
    };
    PW_RETURN_IF_ERROR(hlo::EditInstructions(computation, is_end, &out));
    return std::move(out).Take();
  });
}

}  // namespace

Result<std::optional<std::string>> CompileAndDump(Client* client, std::string_view module, std::string_view format,
                                                  std::string_view options, Stage stage, const std::string& scratch) {
  PW_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Make(scratch));
  ProtoWriter with_dump;
  with_dump.Raw(options);
  Overrides overrides(&with_dump);
  overrides.Text("xla_dump_to", folder->path());
  if (stage == Stage::kPartitioned) overrides.Text("xla_dump_hlo_pass_re", kPartitioning);
  overrides.Flag("xla_dump_hlo_as_proto", true);
  // What comes after the stage is thrown away: let it be quick.
  overrides.Integer("xla_backend_optimization_level", 0);
  overrides.Flag("xla_llvm_disable_expensive_passes", true);
  std::string ended;
  if (stage == Stage::kPartitioned && format == "hlo") {
    PW_ASSIGN_OR_RETURN(ended, WithEnd(module));
  }
  const Status compiled = client->Compile(ended.empty() ? module : ended, format, with_dump.bytes()).status();
  const std::string part =
      stage == Stage::kPartitioned ? "after_" + std::string(kPartitioning) : "before_optimizations";
  PW_ASSIGN_OR_RETURN(std::optional<std::string> dumped, ReadDump(folder->path(), part));
  if (dumped && !ended.empty()) {
    PW_ASSIGN_OR_RETURN(dumped, WithoutEnd(*dumped));
    return dumped;
  }
  if (!dumped || stage == Stage::kPartitioned) PW_RETURN_IF_ERROR(compiled);
  return dumped;
}

}  // namespace pathways::pjrt
