#include "csrc/bindings/guards.h"

#include <cmath>
#include <cstdint>
#include <unordered_map>
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

class Guards {
 public:
  // Entries: (dictionary, key, what has to be there, whether an equal object of the same type will do). NotImplemented:
  // nothing may be there.
  explicit Guards(const py::sequence& entries) {
    std::unordered_map<PyObject*, size_t> known;
    for (const py::handle& item : entries) {
      const auto entry = py::reinterpret_borrow<py::tuple>(item);
      PyObject* mapping = entry[0].ptr();
      if (!PyDict_Check(mapping)) throw py::type_error("a guard is about a dictionary");
      const auto [at, fresh] = known.try_emplace(mapping, mappings_.size());
      if (fresh) mappings_.push_back({mapping, 0, {}});
      mappings_[at->second].links.push_back({entry[1].ptr(), entry[2].ptr(), entry[3].cast<bool>()});
    }
  }

  bool Hold() {
    for (Mapping& mapping : mappings_) {
      const uint64_t version = VersionOf(mapping.of);
      if (version != 0 && version == mapping.version) continue;
      for (const Link& link : mapping.links) {
        if (!Holds(mapping.of, link)) return false;
      }
      mapping.version = version;
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
  };

  static bool Holds(PyObject* mapping, const Link& link) {
    PyObject* found = PyDict_GetItemWithError(mapping, link.key);
    if (found == nullptr && PyErr_Occurred()) throw py::error_already_set();
    if (link.value == Py_NotImplemented) return found == nullptr;
    if (found == link.value) return true;
    if (found == nullptr || !link.or_equal || Py_TYPE(found) != Py_TYPE(link.value)) return false;
    const auto keep = py::reinterpret_borrow<py::object>(found);  // a comparison may run anything
    const int equal = PyObject_RichCompareBool(found, link.value, Py_EQ);
    if (equal < 0) throw py::error_already_set();
    if (equal == 1 && PyFloat_Check(found)) {  // 1 / 0.0 is not 1 / -0.0
      return std::signbit(PyFloat_AS_DOUBLE(found)) == std::signbit(PyFloat_AS_DOUBLE(link.value));
    }
    return equal == 1;
  }

  std::vector<Mapping> mappings_;
};

}  // namespace

void BindGuards(py::module_& module) {
  py::class_<Guards>(module, "Guards")
      .def(py::init<const py::sequence&>(), py::arg("entries"))
      .def("hold", &Guards::Hold);
}

}  // namespace pathways::bindings
