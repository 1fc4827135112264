// Tensors that Python knows, found without a race with the threads that let tensors go.
//
// A tensor of torch 2.9 and its Python object own each other in turn: while Python refers to the object, the object
// owns the tensor, and once nobody in Python does, the tensor owns the object (torch's autograd saves such tensors).
// Autograd's threads let tensors go without the GIL and wait for it only to let the object go. Whoever takes a new
// reference to an object of the second kind in that moment, as `gc.get_objects()` does, may bring a tensor back that is
// being destroyed; `_fix_weakref()` after it makes that a second destruction. An object that owns its tensor keeps it
// alive, and ownership changes with the GIL only.
//
// Threads: all of a call runs with the GIL and no bytecode, so no other thread gets it between.
#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

// Where torch's `THPVariable` says that its tensor is not its own: `c10::MaybeOwned` begins with that flag.
// `frontend/_private.py` checks at the start that the installed torch does it so.
constexpr size_t kBorrowedAt = sizeof(PyObject);

bool OwnsItsTensor(PyObject* tensor) { return reinterpret_cast<const char*>(tensor)[kBorrowedAt] == 0; }

py::list OwningTensors(const py::type& tensor_class) {
  auto* const wanted = reinterpret_cast<PyTypeObject*>(tensor_class.ptr());
  const auto everything =
      py::reinterpret_steal<py::list>(PyObject_CallMethod(py::module_::import("gc").ptr(), "get_objects", nullptr));
  if (!everything) throw py::error_already_set();
  py::list found;
  for (const py::handle& thing : everything) {
    if (PyType_IsSubtype(Py_TYPE(thing.ptr()), wanted) != 0 && OwnsItsTensor(thing.ptr())) found.append(thing);
  }
  return found;
}

}  // namespace

void BindObjects(py::module_& module) {
  module.def(
      "owns_its_tensor", [](const py::object& tensor) { return OwnsItsTensor(tensor.ptr()); }, py::arg("tensor"));
  module.def("owning_tensors", &OwningTensors, py::arg("tensor_class"));
}

}  // namespace pathways::bindings
