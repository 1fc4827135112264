// What the front end needs of the PJRT plugin in this library: moving values between devices, naming user lines.
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/cells.h"
#include "csrc/bindings/tilings.h"
#include "csrc/bindings/values.h"
#include "csrc/compiled/installed.h"
#include "csrc/plugin/adopt.h"
#include "csrc/plugin/error.h"
#include "csrc/values/buffer.h"
#include "csrc/values/client.h"
#include "csrc/values/fetch_clock.h"
#include "csrc/values/upload.h"

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
void TellOfCompile(PyObject* listener, const hlo::HloSummary& module, const std::string& source, size_t numbers) {
  py::gil_scoped_acquire acquire;
  try {
    py::list instructions;
    for (const hlo::HloInstructionSummary& instruction : module.instructions) {
      instructions.append(
          py::make_tuple(instruction.opcode, instruction.shape, instruction.detail, instruction.source));
    }
    const py::handle call = listener;
    call(module.name, module.parameters, module.results, instructions, source, numbers);
  } catch (const std::exception&) {
    PyErr_Clear();  // nobody may fail a compile by listening
  }
}

// "batch", "copy", or a tiling; the same way back.
py::object SetUploadLayout(const py::object& layout) {
  values::UploadLayout wanted;
  if (!py::isinstance<py::str>(layout)) {
    wanted.kind = values::UploadLayout::Kind::kTiling;
    wanted.tiling = ToTiling(layout.cast<TilingParts>());
  } else if (layout.cast<std::string>() == "copy") {
    wanted.kind = values::UploadLayout::Kind::kCopy;
  } else if (layout.cast<std::string>() != "batch") {
    Raise(InvalidArgument("expected 'batch', 'copy' or a tiling, got '" + layout.cast<std::string>() + "'"));
  }
  const values::UploadLayout before = values::SetUploadLayout(std::move(wanted));
  if (before.kind == values::UploadLayout::Kind::kTiling) return TilingToPython(before.tiling);
  return py::str(before.kind == values::UploadLayout::Kind::kCopy ? "copy" : "batch");
}

}  // namespace

void BindPlugin(py::module_& module) {
  module.def(
      "error_in",
      [](const std::string& text) -> std::optional<std::pair<std::string, std::string>> {
        const Status status = plugin::FindOutgoing(text);
        if (status.ok()) return std::nullopt;
        return std::make_pair(std::string(CodeName(status.code())), std::string(status.message()));
      },
      py::arg("text"));
  module.def(
      "bind_device",
      [](int64_t index, std::vector<uint32_t> devices) {
        Check(Unwrap(values::LogicalClient())->Bind(index, std::move(devices)));
      },
      py::arg("index"), py::arg("devices"));
  module.def(
      "unbind_device", [](int64_t index) { Check(Unwrap(values::LogicalClient())->Bind(index, {})); },
      py::arg("index"));
  module.def("set_upload_layout", &SetUploadLayout, py::arg("layout"));
  module.def(
      "adopt_buffer",
      [](const PyBuffer& buffer, int64_t device, std::vector<int64_t> dims, const std::optional<TilingParts>& tiling,
         uint64_t source, bool kept) {
        return Unwrap(plugin::AdoptBuffer(buffer.buffer, device, std::move(dims), ToTiling(tiling), source, kept));
      },
      py::arg("buffer"), py::arg("device"), py::arg("dims"), py::arg("tiling"), py::arg("source") = 0,
      py::arg("kept") = false);
  module.def(
      "live_cells",
      [](int64_t index) {
        std::vector<PyCell> cells;
        const auto client = Unwrap(values::LogicalClient());
        for (const auto& cell : client->live().CellsOn(client->devices().Find(index))) cells.push_back({cell});
        return cells;
      },
      py::arg("index"));
  module.def(
      "value_of_buffer",
      [](const PyBuffer& buffer, int64_t device, std::vector<int64_t> dims, const std::optional<TilingParts>& tiling) {
        const uint64_t token =
            Unwrap(plugin::AdoptBuffer(buffer.buffer, device, std::move(dims), ToTiling(tiling), 0, false));
        values::ValuePtr value = values::ReleaseClaim(token);
        value->DropHolder();
        return PyValue{std::move(value)};
      },
      py::arg("buffer"), py::arg("device"), py::arg("dims"), py::arg("tiling"));
  module.def(
      "set_source_locator",
      [](const py::object& locator) {
        if (locator.is_none()) {
          compiled::SetSourceLocator(nullptr);
          return;
        }
        // Leaked: a compile may hold it while another thread replaces it.
        PyObject* raw = py::object(locator).release().ptr();
        compiled::SetSourceLocator([raw] { return Locate(raw); });
      },
      py::arg("locator"));
  module.def(
      "set_compile_listener",
      [](const py::object& listener) {
        if (listener.is_none()) {
          compiled::SetCompileListener(nullptr);
          return;
        }
        PyObject* raw = py::object(listener).release().ptr();  // leaked, as above
        compiled::SetCompileListener([raw](const hlo::HloSummary& summary, const std::string& source, size_t numbers) {
          TellOfCompile(raw, summary, source, numbers);
        });
      },
      py::arg("listener"));
  module.def("account_fetches_of_this_thread", &values::FetchClock::AccountThisThread, py::arg("account"));
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
      [](const std::shared_ptr<client::Session>& session) { return Unwrap(values::AttachClients(session)); },
      py::arg("session"));
}

}  // namespace pathways::bindings
