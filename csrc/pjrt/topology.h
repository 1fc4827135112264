// Topology: devices that this machine need not have, and a compiler for them (ahead of time).
//
// Ownership: owns the PJRT_TopologyDescription, keeps its Api alive. What it compiles can be looked at, not run.
// Threads:   immutable; every method may be called from any thread.
#ifndef PTPATHWAYS_PJRT_TOPOLOGY_H_
#define PTPATHWAYS_PJRT_TOPOLOGY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/pjrt/api.h"
#include "csrc/pjrt/compiled.h"
#include "csrc/pjrt/named_value.h"

namespace pathways::pjrt {

struct TopologyDevice {
  int64_t id = 0;  // what a device assignment names
  std::string kind;
};

class Topology {
 public:
  // `name` and `options` as the plugin reads them: "v5e:2x2"; "" with a "target_config".
  // UNIMPLEMENTED by plugins that compile for the devices at hand only.
  static Result<std::unique_ptr<Topology>> Create(std::shared_ptr<const Api> api, std::string_view name,
                                                  const NamedValues& options);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  const std::string& platform_version() const { return platform_version_; }
  const std::vector<TopologyDevice>& devices() const { return devices_; }

  // `format` is "hlo" or "mlir"; `options` a CompileOptionsProto.
  Result<std::unique_ptr<Compiled>> Compile(std::string_view code, std::string_view format,
                                            std::string_view options) const;

 private:
  Topology(std::shared_ptr<const Api> api, PJRT_TopologyDescription* topology)
      : api_(std::move(api)), topology_(topology) {}
  Status ReadDescription();

  const std::shared_ptr<const Api> api_;
  PJRT_TopologyDescription* const topology_;
  std::string platform_version_;
  std::vector<TopologyDevice> devices_;
};

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_TOPOLOGY_H_
