// What the files of this room share: errors become exceptions here and only here, and waits let go of the GIL.
//
// Threads: every function is called with the GIL held unless it says otherwise.
#ifndef PTPATHWAYS_BINDINGS_BINDINGS_H_
#define PTPATHWAYS_BINDINGS_BINDINGS_H_

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/client/session.h"
#include "csrc/controller/controller.h"
#include "csrc/pjrt/named_value.h"

namespace pathways::bindings {

// Raises _native.NativeError with `.code`.
[[noreturn]] void Raise(const Status& status);
inline void Check(const Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T Unwrap(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

// Waits without the GIL and looks for Python signals ten times a second. DEADLINE_EXCEEDED saying `what` was expected.
// Accounted as "the client waited" in `session`, if given.
Status WaitFor(const std::shared_ptr<Event>& event, double timeout_s, const std::string& what);

// `options[key]`, or `fallback` when absent.
template <typename T>
T Option(const pybind11::dict& options, const char* key, T fallback) {
  return options.contains(key) ? options[key].template cast<T>() : std::move(fallback);
}

// Named options of a plugin: texts, truth values, integers, numbers, lists of integers.
pjrt::NamedValues CreateOptions(const pybind11::dict& options);

inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The embedded controller of this process; nullptr when there is none.
std::shared_ptr<controller::Controller> EmbeddedController();
// A link to it.
Result<std::unique_ptr<client::Link>> OpenEmbeddedLink(client::Link::Sink sink);

void BindErrors(pybind11::module_& module);
void BindWorker(pybind11::module_& module);
void BindController(pybind11::module_& module);
void BindSession(pybind11::module_& module);
void BindPlugin(pybind11::module_& module);
void BindSim(pybind11::module_& module);
void BindHlo(pybind11::module_& module);
void BindCapture(pybind11::module_& module);
void BindFiles(pybind11::module_& module);
void BindCollective(pybind11::module_& module);
void BindPipelines(pybind11::module_& module);
void BindTopology(pybind11::module_& module);
void BindInterrupt(pybind11::module_& module);
void BindObjects(pybind11::module_& module);

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_BINDINGS_H_
