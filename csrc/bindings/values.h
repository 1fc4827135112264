// What Python holds of a session's values.
//
// Ownership: handles, each keeping its buffer, function or program alive. Threads: used with the GIL held.
#ifndef PTPATHWAYS_BINDINGS_VALUES_H_
#define PTPATHWAYS_BINDINGS_VALUES_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/host_memory.h"
#include "csrc/client/session.h"

namespace pathways::bindings {

// A logical buffer, or one shard of it.
struct PyBuffer {
  std::shared_ptr<client::LogicalBuffer> buffer;
  std::optional<uint32_t> index;              // of the shard; the whole buffer otherwise
  mutable std::shared_ptr<Event> ready = {};  // asked for once

  // The only shard there is, or the one this names. Raises INVALID_ARGUMENT for a whole buffer of several shards.
  client::Shard only_shard() const;
  std::vector<client::Shard> shards() const;
};
struct PyFunction {
  std::shared_ptr<client::Function> function;
};
struct PyProgram {
  std::shared_ptr<client::Program> program;
};

// NumPy's type for an element type; types NumPy lacks come as their bits.
pybind11::dtype NumpyType(DType dtype);
// "f32" and so on; raises INVALID_ARGUMENT.
DType DTypeFromName(const std::string& name);

// A value from Python as dense bytes with a type. `dtype` not empty: the array holds the bits of that type.
struct HostValue {
  pybind11::array array;  // keeps the bytes
  TensorType type;
};
HostValue ToHostValue(const pybind11::object& value, const std::string& dtype);

// The bytes of each shard, as arrays; all fetches are under way at once.
std::vector<pybind11::array> FetchShards(const std::vector<client::Shard>& shards, double timeout_s);
// Set when every shard has its value.
std::shared_ptr<Event> ReadyEvent(const PyBuffer& buffer);

void BindValues(pybind11::module_& module);
void BindPrograms(pybind11::class_<client::Session, std::shared_ptr<client::Session>>& session,
                  pybind11::module_& module);

}  // namespace pathways::bindings

#endif  // PTPATHWAYS_BINDINGS_VALUES_H_
