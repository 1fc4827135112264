// PJRT_Client and PJRT_TopologyDescription.
//
// Ownership: the caller's, until they are destroyed, except for a client's own topology. Both share their
//            state with everything that is made through them.
// Threads:   every slot may be called from any thread.
#ifndef PTPATHWAYS_PLUGIN_CLIENT_H_
#define PTPATHWAYS_PLUGIN_CLIENT_H_

#include <memory>
#include <utility>

#include "csrc/compiled/compiler.h"
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

#endif  // PTPATHWAYS_PLUGIN_CLIENT_H_
