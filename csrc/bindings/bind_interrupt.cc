// Ctrl-C in waits that are not ours: PyTorch/XLA sleeps in C++ for a value, base/interrupt.h ends that with an error,
// and here the error becomes the KeyboardInterrupt that Python's own handler raises.
//
// PyTorch makes a RuntimeError of the error, and Python looks for signals only between bytecodes, which come too late:
// `except KeyboardInterrupt` would not see it. A trace function is called where an exception enters Python code and may
// put another in its place, so one is hung up while the main thread is in C++, and takes itself down. From Python 3.12
// on that takes the GIL, which cannot be had then; but a callback of sys.monitoring that is called where exceptions are
// raised costs nothing elsewhere (PEP 669), so it is there all the time.
//
// Threads: About runs on the thread that gives waits up, without the GIL, while the main thread sleeps in C++.
#include <cstring>

#include "csrc/base/interrupt.h"
#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

// Not through str(), which looks for signals itself.
bool IsOurs(PyObject* exception) {
  if (!PyExceptionInstance_Check(exception)) return false;
  PyObject* const arguments = reinterpret_cast<PyBaseExceptionObject*>(exception)->args;
  if (arguments == nullptr || PyTuple_GET_SIZE(arguments) != 1) return false;
  PyObject* const text = PyTuple_GET_ITEM(arguments, 0);
  const char* const message = PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
  return message != nullptr && std::strstr(message, interrupt::kMessage) != nullptr;
}

#if PY_VERSION_HEX < 0x030C0000

PyThreadState* main_thread = nullptr;  // lives as long as the interpreter

int OnTrace(PyObject*, PyFrameObject* frame, int what, PyObject* raised) {
  if (what != PyTrace_EXCEPTION) return 0;
  PyEval_SetTrace(nullptr, nullptr);
  if (!IsOurs(PyTuple_GET_ITEM(raised, 1)) || PyErr_CheckSignals() == 0) return 0;
  PyTraceBack_Here(frame);  // Python has noted this frame for the exception that goes
  return -1;
}

void About() {
  // No GIL: whoever holds it may be waiting for what the main thread has locked. The main thread reads the field when
  // it is back in Python, after the wait's end, which is set later than this.
  if (main_thread->c_tracefunc == nullptr) main_thread->c_tracefunc = &OnTrace;  // a debugger's stays
}

// False where there is no such thread.
bool Prepare(unsigned long main) {
  for (PyThreadState* each = PyInterpreterState_ThreadHead(PyInterpreterState_Main()); each != nullptr;
       each = PyThreadState_Next(each)) {
    if (each->thread_id == main) main_thread = each;
  }
  return main_thread != nullptr;
}

#else

// Raises the KeyboardInterrupt in place of the error. Off the main thread signals are not looked for.
void OnRaise(const py::object&, const py::object&, const py::object& raised) {
  if (IsOurs(raised.ptr()) && PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void About() {}

// Where other tools have all places, the KeyboardInterrupt comes after the error, as Python looks for signals.
bool Prepare(unsigned long) {
  const py::object monitoring = py::module_::import("sys").attr("monitoring");
  for (const int place : {3, 4, 2, 1, 0}) {  // the first two are reserved for no kind of tool
    if (!monitoring.attr("get_tool")(place).is_none()) continue;
    monitoring.attr("use_tool_id")(place, "ptpathways");
    const py::object raises = monitoring.attr("events").attr("RAISE");
    monitoring.attr("register_callback")(place, raises, py::cpp_function(&OnRaise));
    monitoring.attr("set_events")(place, raises);
    break;
  }
  return true;
}

#endif

bool IsFinalizing() {
#if PY_VERSION_HEX < 0x030D0000
  return _Py_IsFinalizing() != 0;
#else
  return Py_IsFinalizing() != 0;
#endif
}

bool Pending() {
  if (!Py_IsInitialized() || IsFinalizing()) return false;
  const PyGILState_STATE held = PyGILState_Ensure();
  const bool pending = PyOS_InterruptOccurred() != 0;  // forgets it, too
  if (pending) PyErr_SetInterrupt();
  PyGILState_Release(held);
  return pending;
}

}  // namespace

void BindInterrupt(py::module_& module) {
  module.def(
      "watch_interrupts",
      [](unsigned long main) {
        static bool prepared = false;
        if (prepared) return interrupt::Observe();
        prepared = Prepare(main);
        if (prepared) interrupt::Enable({&Pending, &About});
      },
      py::arg("main_thread"));
}

}  // namespace pathways::bindings
