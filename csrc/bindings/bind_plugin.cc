// What the front end needs of the PJRT plugin in this library: moving values between devices, naming user lines.
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/plugin/adopt.h"
#include "csrc/plugin/client.h"
#include "csrc/plugin/compiles.h"
#include "csrc/plugin/source.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

// Runs on the thread that compiles, which torch has let go of the GIL or which holds it; both are fine here.
std::string Locate(PyObject* locator) {
  py::gil_scoped_acquire acquire;
  try {
    return py::handle(locator)().cast<std::string>();
  } catch (const std::exception&) {
    PyErr_Clear();  // a line for an error message is not worth an error
    return "";
  }
}

// Runs on the compiling thread, too.
void TellOfCompile(PyObject* listener, const pjrt::HloSummary& module, const std::string& source) {
  py::gil_scoped_acquire acquire;
  try {
    py::list instructions;
    for (const pjrt::HloInstructionSummary& instruction : module.instructions) {
      instructions.append(
          py::make_tuple(instruction.opcode, instruction.shape, instruction.detail, instruction.source));
    }
    const py::handle call = listener;
    call(module.name, module.parameters, module.results, instructions, source);
  } catch (const std::exception&) {
    PyErr_Clear();  // nobody may fail a compile by listening
  }
}

}  // namespace

void BindPlugin(py::module_& module) {
  module.def(
      "set_source_locator",
      [](const py::object& locator) {
        if (locator.is_none()) {
          plugin::SetSourceLocator(nullptr);
          return;
        }
        // Leaked: a compile may hold it while another thread replaces it.
        PyObject* raw = py::object(locator).release().ptr();
        plugin::SetSourceLocator([raw] { return Locate(raw); });
      },
      py::arg("locator"));
  module.def(
      "set_compile_listener",
      [](const py::object& listener) {
        if (listener.is_none()) {
          plugin::SetCompileListener(nullptr);
          return;
        }
        PyObject* raw = py::object(listener).release().ptr();  // leaked, as above
        plugin::SetCompileListener(
            [raw](const pjrt::HloSummary& summary, const std::string& source) { TellOfCompile(raw, summary, source); });
      },
      py::arg("listener"));
  module.def("account_fetches_of_this_thread", &plugin::ClientState::AccountFetchesOfThisThread, py::arg("account"));
  module.def(
      "transfer",
      [](uint64_t token, int64_t device) {
        Result<uint64_t> copy = [&] {
          py::gil_scoped_release release;
          return plugin::Transfer(token, device);
        }();
        return Unwrap(std::move(copy));
      },
      py::arg("token"), py::arg("device_index"));
  module.def(
      "adopt_next_uploads", [](const std::vector<uint64_t>& tokens) { Check(plugin::AdoptNextUploads(tokens)); },
      py::arg("tokens"));
  module.def(
      "attach_clients",
      [](const std::shared_ptr<client::Session>& session) { return Unwrap(plugin::AttachClients(session)); },
      py::arg("session"));
}

}  // namespace pathways::bindings
