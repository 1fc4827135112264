// NativeError, and waits that Ctrl-C can end.
#include <algorithm>
#include <optional>

#include "csrc/base/waits.h"
#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

PyObject* native_error = nullptr;  // owned by the module, which is never unloaded

}  // namespace

void Raise(const Status& status) {
  py::object error = py::reinterpret_borrow<py::object>(native_error)(std::string(status.message()));
  error.attr("code") = std::string(CodeName(status.code()));
  PyErr_SetObject(native_error, error.ptr());
  throw py::error_already_set();
}

Status WaitFor(const std::shared_ptr<Event>& event, double timeout_s, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_s);
  std::optional<waits::Entry> entry;
  for (;;) {
    {
      py::gil_scoped_release release;
      const auto now = std::chrono::steady_clock::now();
      const auto step = std::min<std::chrono::nanoseconds>(deadline - now, std::chrono::milliseconds(100));
      if (auto status = event->WaitFor(std::max(step, std::chrono::nanoseconds(0)))) return *status;
      if (!entry) entry.emplace(what);
      if (std::chrono::steady_clock::now() >= deadline) {
        return DeadlineExceeded("expected " + what + " within " + std::to_string(timeout_s) + " s");
      }
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void BindErrors(py::module_& module) {
  native_error = PyErr_NewException("ptpathways.native._native.NativeError", PyExc_RuntimeError, nullptr);
  module.add_object("NativeError", py::reinterpret_borrow<py::object>(native_error));
}

}  // namespace pathways::bindings
