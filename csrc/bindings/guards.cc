#include "csrc/bindings/guards.h"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/bindings/bindings.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

#if PY_VERSION_HEX < 0x030C0000
uint64_t VersionOf(PyObject* mapping) { return reinterpret_cast<PyDictObject*>(mapping)->ma_version_tag; }
#else
uint64_t VersionOf(PyObject*) { return 0; }  // not counted any more: looks at each of them every time
#endif

// Whether a class is one whose objects are equal only if they are alike: not of the user's, whose may say anything.
bool ComparesItself(PyTypeObject* type) {
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
      type == &PyBytes_Type || type == &PyComplex_Type) {
    return true;
  }
  const std::string_view name = type->tp_name;
  return name.starts_with("numpy.") || name == "torch.dtype" || name == "torch.device" || name == "torch.Size";
}

// Of one type and equal, in tuples, too: 1, 1.0 and True give other computations, and so do 0.0 and -0.0. False where
// that is not known.
bool Equal(PyObject* one, PyObject* other) {
  if (one == other) return true;
  if (Py_TYPE(one) != Py_TYPE(other)) return false;
  if (PyTuple_CheckExact(one)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(one);
    if (size != PyTuple_GET_SIZE(other)) return false;
    for (Py_ssize_t place = 0; place < size; ++place) {
      if (!Equal(PyTuple_GET_ITEM(one, place), PyTuple_GET_ITEM(other, place))) return false;
    }
    return true;
  }
  if (!ComparesItself(Py_TYPE(one))) return false;
  const auto keep = py::reinterpret_borrow<py::object>(one);  // a comparison may run anything
  const int equal = PyObject_RichCompareBool(one, other, Py_EQ);
  if (equal < 0) throw py::error_already_set();
  if (equal == 1 && PyFloat_Check(one)) {  // 1 / 0.0 is not 1 / -0.0
    return std::signbit(PyFloat_AS_DOUBLE(one)) == std::signbit(PyFloat_AS_DOUBLE(other));
  }
  return equal == 1;
}

// Of a dictionary whatever its class's __len__ says.
Py_ssize_t SizeOf(PyObject* container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  const Py_ssize_t size = PyObject_Size(container);
  if (size < 0) throw py::error_already_set();
  return size;
}

class Guards {
 public:
  // Entries: (dictionary, key, what has to be there, whether an equal object of the same type will do). NotImplemented:
  // nothing may be there. Orders: (dictionary, its keys in order, the same objects or equal texts). Sizes: (container,
  // length). Functions: (function, its code, its defaults, its keyword defaults).
  Guards(const py::sequence& entries, const py::sequence& orders, const py::sequence& sizes,
         const py::sequence& functions) {
    for (const py::handle& item : entries) {
      const auto entry = py::reinterpret_borrow<py::tuple>(item);
      OfMapping(entry[0].ptr()).links.push_back({entry[1].ptr(), entry[2].ptr(), entry[3].cast<bool>()});
    }
    for (const py::handle& item : orders) {
      const auto order = py::reinterpret_borrow<py::tuple>(item);
      OfMapping(order[0].ptr()).keys = py::reinterpret_borrow<py::tuple>(order[1]).ptr();
    }
    known_.clear();
    for (const py::handle& item : sizes) {
      const auto size = py::reinterpret_borrow<py::tuple>(item);
      sizes_.emplace_back(size[0].ptr(), size[1].cast<Py_ssize_t>());
    }
    for (const py::handle& item : functions) {
      const auto parts = py::reinterpret_borrow<py::tuple>(item);
      if (!PyFunction_Check(parts[0].ptr())) throw py::type_error("a guard is about a function");
      functions_.push_back({parts[0].ptr(), parts[1].ptr(), OrNull(parts[2].ptr()), OrNull(parts[3].ptr())});
    }
  }

  bool Hold() {
    for (Mapping& mapping : mappings_) {
      const uint64_t version = VersionOf(mapping.of);
      if (version != 0 && version == mapping.version) continue;
      for (const Link& link : mapping.links) {
        if (!Holds(mapping.of, link)) return false;
      }
      if (mapping.keys != nullptr && !HasKeys(mapping.of, mapping.keys)) return false;
      mapping.version = version;
    }
    for (const auto& [container, length] : sizes_) {
      if (SizeOf(container) != length) return false;
    }
    for (const Function& one : functions_) {
      if (PyFunction_GET_CODE(one.of) != one.code || PyFunction_GET_DEFAULTS(one.of) != one.defaults ||
          PyFunction_GET_KW_DEFAULTS(one.of) != one.keyword_defaults) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Link {
    PyObject* key;
    PyObject* value;
    bool or_equal;
  };
  struct Mapping {
    PyObject* of;
    uint64_t version;  // when everything was last there
    std::vector<Link> links;
    PyObject* keys;  // in their order, a tuple; nullptr: any
  };
  struct Function {
    PyObject* of;
    PyObject* code;
    PyObject* defaults;          // nullptr: none
    PyObject* keyword_defaults;  // nullptr: none
  };

  static PyObject* OrNull(PyObject* value) { return value == Py_None ? nullptr : value; }

  Mapping& OfMapping(PyObject* mapping) {
    if (!PyDict_Check(mapping)) throw py::type_error("a guard is about a dictionary");
    const auto [at, fresh] = known_.try_emplace(mapping, mappings_.size());
    if (fresh) mappings_.push_back({mapping, 0, {}, nullptr});
    return mappings_[at->second];
  }

  static bool Holds(PyObject* mapping, const Link& link) {
    PyObject* found = PyDict_GetItemWithError(mapping, link.key);
    if (found == nullptr && PyErr_Occurred()) throw py::error_already_set();
    if (link.value == Py_NotImplemented) return found == nullptr;
    if (found == link.value) return true;
    return found != nullptr && link.or_equal && Equal(found, link.value);
  }

  static bool HasKeys(PyObject* mapping, PyObject* keys) {
    if (PyDict_GET_SIZE(mapping) != PyTuple_GET_SIZE(keys)) return false;
    PyObject *key, *value;
    Py_ssize_t next = 0;
    for (Py_ssize_t place = 0; PyDict_Next(mapping, &next, &key, &value) != 0; ++place) {
      PyObject* const wanted = PyTuple_GET_ITEM(keys, place);
      if (key == wanted) continue;
      if (!PyUnicode_CheckExact(key) || !PyUnicode_CheckExact(wanted) || PyUnicode_Compare(key, wanted) != 0) {
        return false;
      }
    }
    return true;
  }

  std::unordered_map<PyObject*, size_t> known_;  // while this is made
  std::vector<Mapping> mappings_;
  std::vector<std::pair<PyObject*, Py_ssize_t>> sizes_;
  std::vector<Function> functions_;
};

}  // namespace

void BindGuards(py::module_& module) {
  py::class_<Guards>(module, "Guards")
      .def(py::init<const py::sequence&, const py::sequence&, const py::sequence&, const py::sequence&>(),
           py::arg("entries"), py::arg("orders") = py::tuple(), py::arg("sizes") = py::tuple(),
           py::arg("functions") = py::tuple())
      .def("hold", &Guards::Hold);
}

}  // namespace pathways::bindings
