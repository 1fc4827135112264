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
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

// Where torch's `THPVariable` says that its tensor is not its own: `c10::MaybeOwned` begins with that flag.
// `frontend/xla/_private.py` checks at the start that the installed torch does it so.
constexpr size_t kBorrowedAt = sizeof(PyObject);

constexpr size_t kImplAt = sizeof(PyObject) + sizeof(void*);
// Where torch's objects that count who holds them have that number, and a tensor the memory that it has.
constexpr size_t kCountAt = sizeof(void*);
constexpr size_t kStorageAt = 2 * sizeof(void*);

template <typename T>
T Field(const void* object, size_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(object) + at, sizeof value);
  return value;
}

// How many weak references there are to an object.
uint64_t WeakReferences(PyObject* object) {
  uint64_t count = 0;
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return count;
  auto* next = *reinterpret_cast<PyWeakReference**>(PyObject_GET_WEAKREFS_LISTPTR(object));
  for (; next != nullptr; next = next->wr_next) ++count;
  return count;
}

// Who holds the tensors that are a dictionary's values: of each, how often Python refers to it, weakly too, as to a
// tensor that would be gone without a replay; how many tensors have its memory, how often torch refers to it, and which
// memory that is.
std::array<py::list, 4> CountHolders(const py::dict& tensors) {
  std::array<py::list, 4> columns;
  for (py::list& column : columns) column = py::list(tensors.size());
  PyObject *key, *tensor;
  Py_ssize_t next = 0;
  for (Py_ssize_t place = 0; PyDict_Next(tensors.ptr(), &next, &key, &tensor) != 0; ++place) {
    const auto* const impl = Field<const char*>(tensor, kImplAt);
    const auto* const memory = Field<const char*>(impl, kStorageAt);
    const std::array<uint64_t, 4> row = {static_cast<uint64_t>(Py_REFCNT(tensor)) + WeakReferences(tensor),
                                         memory == nullptr ? 0 : Field<uint32_t>(memory, kCountAt),
                                         Field<uint32_t>(impl, kCountAt), reinterpret_cast<uint64_t>(memory)};
    for (size_t column = 0; column < row.size(); ++column) {
      PyList_SET_ITEM(columns[column].ptr(), place, PyLong_FromUnsignedLongLong(row[column]));
    }
  }
  return columns;
}

// Whether each memory (`untyped_storage()._cdata`) is held so often.
bool AreHeld(const py::buffer& places, uint32_t count) {
  const py::buffer_info info = places.request();
  if (info.ndim != 1 || info.itemsize != sizeof(uint64_t)) throw py::type_error("places are numbers of 64 bits");
  const std::span all(static_cast<const void* const*>(info.ptr), static_cast<size_t>(info.size));
  return std::all_of(all.begin(), all.end(),
                     [count](const void* memory) { return Field<uint32_t>(memory, kCountAt) == count; });
}

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
    return FirstThat(tensors, kData, [](size_t, const char* data) { return data == nullptr || Shared(data); });
  }

  // The first of `tensors` that functionalization computes from another one when it is written: a view; -1: none.
  int64_t FirstView(const py::list& tensors) const {
    for (size_t place = 0; place < tensors.size(); ++place) {
      const auto* const impl =
          Field<const char*>(PyList_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(place)), kImplAt);
      if (impl == nullptr || Field<const void*>(impl, 0) != classes_[0]) continue;  // it has no wrapper
      if (Field<const void*>(impl, kViewsAt) != Field<const void*>(impl, kViewsAt + sizeof(void*))) {
        return static_cast<int64_t>(place);
      }
    }
    return -1;
  }

  // Whether each of `tensors` has the value of this handle, as PyTorch/XLA would say, which names a value by the
  // address of its buffer and asks first whether it is deleted; false also while it is to be computed, and where the
  // objects are not such as are known.
  bool Have(const py::list& tensors, const py::buffer& handles) const {
    const py::buffer_info info = handles.request();
    if (info.ndim != 1 || info.itemsize != sizeof(int64_t)) throw py::type_error("handles are numbers of 64 bits");
    if (static_cast<size_t>(info.size) != tensors.size()) return false;
    const auto* const wanted = static_cast<const int64_t*>(info.ptr);
    return FirstThat(tensors, kPjRtData, [wanted](size_t place, const char* value) {
             return value == nullptr || Field<int64_t>(value, kNextAt[kPjRtData]) != wanted[place];
           }) < 0;
  }

 private:
  static constexpr size_t kTensorImplBytes = 184;
  static constexpr size_t kViewsAt = kTensorImplBytes + 48;  // in the wrapper: what leads to a view, a `std::vector`
  static constexpr size_t kHandleAt = 8, kNodeAt = 24;  // in Data: pairs of pointers, to the thing and to its counts
  static constexpr size_t kUsersAt = 8;                 // in libstdc++'s counts
  // Where each of the objects above, without the first, points to the next.
  static constexpr std::array<size_t, 5> kNextAt = {kTensorImplBytes, kTensorImplBytes, 16, kHandleAt, 488};
  static constexpr size_t kImpl = 1, kData = 3, kPjRtData = 4;  // among the objects above, without the first

  // Of a `std::shared_ptr` at `at`; 0 when it is empty.
  static int32_t Users(const void* object, size_t at) {
    const char* const counts = Field<const char*>(object, at + sizeof(void*));
    return counts == nullptr ? 0 : Field<int32_t>(counts, kUsersAt);
  }

  // The first of `tensors` of whose object of that kind `wanted` is true; -1: of none. It is given the tensor's place,
  // and nullptr where the objects are not such as are known. Many at a time go one hop on, so that the processor waits
  // for the memory of many at once.
  template <typename Wanted>
  int64_t FirstThat(const py::list& tensors, size_t kind, const Wanted& wanted) const {
    constexpr size_t kAtATime = 64;
    std::array<const char*, kAtATime> at;
    for (size_t first = 0; first < tensors.size(); first += kAtATime) {
      const size_t count = std::min(kAtATime, tensors.size() - first);
      for (size_t i = 0; i < count; ++i) {
        at[i] = Field<const char*>(PyList_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(first + i)), kImplAt);
      }
      for (size_t i = 0; i < count; ++i) {  // one without functionalization's wrapper is a hop further already
        if (at[i] != nullptr && Field<const void*>(at[i], 0) != classes_[kImpl]) at[i] = Next(at[i], 0);
      }
      for (size_t hop = kImpl; hop < kind; ++hop) {
        for (size_t i = 0; i < count; ++i) at[i] = Next(at[i], hop);
      }
      for (size_t i = 0; i < count; ++i) {
        const bool known = at[i] != nullptr && Field<const void*>(at[i], 0) == classes_[kind];
        if (wanted(first + i, known ? at[i] : nullptr)) return static_cast<int64_t>(first + i);
      }
    }
    return -1;
  }

  // What an object of that kind points to; nullptr where it is of another one.
  const char* Next(const char* object, size_t kind) const {
    if (object == nullptr || Field<const void*>(object, 0) != classes_[kind]) return nullptr;
    return Field<const char*>(object, kNextAt[kind]);
  }

  static bool Shared(const char* data) {
    const int32_t node = Users(data, kNodeAt);
    return Users(data, kHandleAt) > 1 + (node > 0 ? 1 : 0) || node > 1;
  }

  std::array<const void*, 5> classes_{};
};

}  // namespace

void BindObjects(py::module_& module) {
  py::class_<TensorValues>(module, "TensorValues")
      .def(py::init<const py::object&>(), py::arg("tensor"))
      .def("first_shared", &TensorValues::FirstShared, py::arg("tensors"))
      .def("first_view", &TensorValues::FirstView, py::arg("tensors"))
      .def("have", &TensorValues::Have, py::arg("tensors"), py::arg("handles"));
  module.def(
      "owns_its_tensor", [](const py::object& tensor) { return OwnsItsTensor(tensor.ptr()); }, py::arg("tensor"));
  module.def("owning_tensors", &OwningTensors, py::arg("tensor_class"));
  module.def("count_holders", &CountHolders, py::arg("tensors"));
  module.def("are_held", &AreHeld, py::arg("places"), py::arg("count"));
}

}  // namespace pathways::bindings
