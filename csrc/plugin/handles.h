// The caller's handles of clients, topologies and programs. Those of devices and buffers are in csrc/values.
//
// Ownership: the caller's, until they are destroyed, except for a client's own topology. What they stand for is shared
//            with everything that is made through them.
// Threads:   every slot may be called from any thread. Locks: none.
#ifndef PTPATHWAYS_PLUGIN_HANDLES_H_
#define PTPATHWAYS_PLUGIN_HANDLES_H_

#include <atomic>
#include <memory>
#include <utility>

#include "csrc/compiled/compiler.h"
#include "csrc/compiled/program.h"
#include "csrc/values/client.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::plugin {

inline constexpr char kPlatformName[] = "pathways";

}  // namespace pathways::plugin

struct PJRT_TopologyDescription {
  // Set in topologies the caller owns; a client's own topology is borrowed from it.
  std::shared_ptr<pathways::values::ClientState> owned;
  pathways::values::ClientState* state = nullptr;
};

struct PJRT_Client {
  explicit PJRT_Client(std::shared_ptr<pathways::values::ClientState> of)
      : state(std::move(of)),
        compiler(std::make_shared<pathways::compiled::Compiler>(state)),
        topology{nullptr, state.get()} {}

  const std::shared_ptr<pathways::values::ClientState> state;
  const std::shared_ptr<pathways::compiled::Compiler> compiler;
  PJRT_TopologyDescription topology;
};

struct PJRT_Executable {
  std::shared_ptr<const pathways::compiled::Program> program;
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const pathways::compiled::Program> program;
  std::atomic<bool> deleted{false};
};

#endif  // PTPATHWAYS_PLUGIN_HANDLES_H_
