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
#include <array>
#include <cstdint>
#include <cstring>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

// Where torch's `THPVariable` says that its tensor is not its own: `c10::MaybeOwned` begins with that flag.
// `frontend/xla/_private.py` checks at the start that the installed torch does it so.
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

// The value of a tensor on a device and who has it, as torch 2.9.0 and torch_xla 2.9.0 lay these objects out in memory:
//
//   Python object -> FunctionalTensorWrapper -> XLATensorImpl -> XLATensor -> Data {handle, ir_value} -> PjRtData ->
//   buffer
//
// PyTorch/XLA counts nothing itself: two tensors share a value when their Data have one handle (`std::shared_ptr`), or
// one node of the trace (`ir_value`) that has the handle. Of each object the address of its virtual functions is
// learned from a tensor that is known to be such, and compared before what it points to is read;
// `frontend/capture/_exclusive.py` checks what is counted.
class TensorValues {
 public:
  // `tensor`: a plain one, with a value on a device.
  explicit TensorValues(const py::object& tensor) {
    const char* at = Field<const char*>(tensor.ptr(), kImplAt);
    for (size_t hop = 0; hop < classes_.size(); ++hop) {
      if (at == nullptr) throw py::value_error("a tensor that has its value on a device is required");
      classes_[hop] = Field<const void*>(at, 0);
      at = Field<const char*>(at, kNextAt[hop]);
    }
  }

  // The first of `tensors` whose value others have, too, or whose objects are not such as are known; -1: none.
  int64_t FirstShared(const py::list& tensors) const {
    for (size_t place = 0; place < tensors.size(); ++place) {
      if (Shared(PyList_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(place)))) return static_cast<int64_t>(place);
    }
    return -1;
  }

  // Whether each of `tensors` has the value of this handle, as PyTorch/XLA would say; false also while it is to
  // be computed, and where the objects are not such as are known.
  bool Have(const py::list& tensors, const py::list& handles) const {
    if (tensors.size() != handles.size()) return false;
    for (size_t place = 0; place < tensors.size(); ++place) {
      const auto at = static_cast<Py_ssize_t>(place);
      const int64_t handle = PyLong_AsLongLong(PyList_GET_ITEM(handles.ptr(), at));
      if (handle == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
      if (!Has(PyList_GET_ITEM(tensors.ptr(), at), handle)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kImplAt = sizeof(PyObject) + sizeof(void*);
  static constexpr size_t kTensorImplBytes = 184;
  static constexpr size_t kHandleAt = 8, kNodeAt = 24;  // in Data: pairs of pointers, to the thing and to its counts
  static constexpr size_t kUsersAt = 8;                 // in libstdc++'s counts
  // Where each of the objects above, without the first, points to the next.
  static constexpr std::array<size_t, 5> kNextAt = {kTensorImplBytes, kTensorImplBytes, 16, kHandleAt, 488};
  static constexpr size_t kImpl = 1, kData = 3, kPjRtData = 4;  // among the objects above, without the first

  template <typename T>
  static T Field(const void* object, size_t at) {
    T value;
    std::memcpy(&value, static_cast<const char*>(object) + at, sizeof value);
    return value;
  }

  // Of a `std::shared_ptr` at `at`; 0 when it is empty.
  static int32_t Users(const void* object, size_t at) {
    const char* const counts = Field<const char*>(object, at + sizeof(void*));
    return counts == nullptr ? 0 : Field<int32_t>(counts, kUsersAt);
  }

  // The tensor's object of that kind; nullptr where those before it are not such as are known.
  const char* Find(PyObject* tensor, size_t kind) const {
    const char* at = Field<const char*>(tensor, kImplAt);
    const bool plain =
        at != nullptr && Field<const void*>(at, 0) == classes_[kImpl];  // without functionalization's wrapper
    for (size_t hop = plain ? kImpl : 0;; ++hop) {
      if (at == nullptr || Field<const void*>(at, 0) != classes_[hop]) return nullptr;
      if (hop == kind) return at;
      at = Field<const char*>(at, kNextAt[hop]);
    }
  }

  bool Shared(PyObject* tensor) const {
    const char* const data = Find(tensor, kData);
    if (data == nullptr) return true;
    const int32_t node = Users(data, kNodeAt);
    return Users(data, kHandleAt) > 1 + (node > 0 ? 1 : 0) || node > 1;
  }

  // PyTorch/XLA names a value by the address of its buffer, which it asks first whether it is deleted.
  bool Has(PyObject* tensor, int64_t handle) const {
    const char* const value = Find(tensor, kPjRtData);
    return value != nullptr && Field<int64_t>(value, kNextAt[kPjRtData]) == handle;
  }

  std::array<const void*, 5> classes_{};
};

}  // namespace

void BindObjects(py::module_& module) {
  py::class_<TensorValues>(module, "TensorValues")
      .def(py::init<const py::object&>(), py::arg("tensor"))
      .def("first_shared", &TensorValues::FirstShared, py::arg("tensors"))
      .def("have", &TensorValues::Have, py::arg("tensors"), py::arg("handles"));
  module.def(
      "owns_its_tensor", [](const py::object& tensor) { return OwnsItsTensor(tensor.ptr()); }, py::arg("tensor"));
  module.def("owning_tensors", &OwningTensors, py::arg("tensor_class"));
}

}  // namespace pathways::bindings
