#include "csrc/pjrt/partition.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <system_error>

#include "csrc/base/proto.h"
#include "csrc/pjrt/compile_options.h"

namespace pathways::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPass = "spmd-partitioning";

// A folder that goes with this object.
class ScratchFolder {
 public:
  static Result<std::unique_ptr<ScratchFolder>> Make(const std::string& parent) {
    std::error_code error;
    const fs::path base = parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
    std::string name = (base / "pw-partition-XXXXXX").string();
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

// The module of the file that the last of the partitioning passes wrote. The passes' numbers stand in the names with
// leading zeros, so the last in order of names is the last in time.
Result<std::string> ReadDump(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.find("after_" + std::string(kPass)) != std::string::npos && name.ends_with(".hlo.pb")) {
      found.push_back(entry.path());
    }
  }
  if (error) return Unavailable("cannot read the scratch folder " + folder + ": " + error.message());
  if (found.empty()) return Unimplemented("the plugin does not write down the module after SPMD partitioning");
  std::ifstream file(*std::max_element(found.begin(), found.end()), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ProtoReader reader(bytes);
  ProtoField field;
  while (reader.Next(&field)) {
    if (field.is(1, WireType::kBytes)) return std::string(field.bytes);  // HloProto.hlo_module
  }
  return DataLoss("expected a module in what the plugin wrote after SPMD partitioning, got none");
}

}  // namespace

Result<ShardProgram> DescribeShardProgram(std::string module) {
  ShardProgram out;
  PW_ASSIGN_OR_RETURN(out.info, ReadHloModule(module));
  for (const std::string& opcode : out.info.cross_device_opcodes) {
    if (opcode == "partition-id") {
      out.differs = true;
    } else if (opcode != "replica-id") {
      out.collectives.push_back(opcode);
    }
  }
  out.module = std::move(module);
  return out;
}

Result<ShardProgram> Partitioner::Partition(std::string_view module, std::string_view format, std::string_view options,
                                            int64_t partitions) const {
  PW_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Make(scratch_));
  PW_ASSIGN_OR_RETURN(const auto client, Client::Create(api_, {{"cpu_device_count", partitions}}));
  if (static_cast<int64_t>(client->devices().size()) < partitions) {
    return Unimplemented("expected a client with " + std::to_string(partitions) + " devices of " + api_->origin() +
                         " to partition for, got " + std::to_string(client->devices().size()));
  }
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < partitions; ++i) ids.push_back(client->devices()[static_cast<size_t>(i)].id);
  ProtoWriter with_dump;
  PW_ASSIGN_OR_RETURN(const std::string for_devices, ForDevices(options, 1, partitions, ids));
  with_dump.Raw(for_devices);
  Overrides overrides(&with_dump);
  overrides.Text("xla_dump_to", folder->path());
  overrides.Text("xla_dump_hlo_pass_re", kPass);
  overrides.Flag("xla_dump_hlo_as_proto", true);
  // What comes after partitioning is thrown away: let it be quick.
  overrides.Integer("xla_backend_optimization_level", 0);
  overrides.Flag("xla_llvm_disable_expensive_passes", true);
  PW_RETURN_IF_ERROR(client->Compile(module, format, with_dump.bytes()).status());
  PW_ASSIGN_OR_RETURN(std::string partitioned, ReadDump(folder->path()));
  return DescribeShardProgram(std::move(partitioned));
}

}  // namespace pathways::pjrt
