// NamedValueList: attributes in the C API's form, with the memory they point to.
//
// Ownership: owns names and values; the C array stays valid and in place as long as the list lives unmoved.
// Threads:   fill it once, read it from anywhere.
#ifndef PTPATHWAYS_VALUES_NAMED_VALUE_H_
#define PTPATHWAYS_VALUES_NAMED_VALUE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "csrc_generated/pjrt_abi.h"

namespace pathways::values {

class NamedValueList {
 public:
  NamedValueList() = default;
  NamedValueList(const NamedValueList&) = delete;
  NamedValueList& operator=(const NamedValueList&) = delete;

  void Add(std::string name, std::string text) {
    const std::string& value = texts_.emplace_back(std::move(text));
    PJRT_NamedValue& out = Append(std::move(name), PJRT_NamedValue_kString, value.size());
    out.string_value = value.c_str();
  }
  void Add(std::string name, int64_t value) { Append(std::move(name), PJRT_NamedValue_kInt64, 1).int64_value = value; }
  void Add(std::string name, float value) { Append(std::move(name), PJRT_NamedValue_kFloat, 1).float_value = value; }
  void Add(std::string name, bool value) { Append(std::move(name), PJRT_NamedValue_kBool, 1).bool_value = value; }
  void Add(std::string name, std::vector<int64_t> values) {
    const std::vector<int64_t>& kept = lists_.emplace_back(std::move(values));
    Append(std::move(name), PJRT_NamedValue_kInt64List, kept.size()).int64_array_value = kept.data();
  }

  const PJRT_NamedValue* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  PJRT_NamedValue& Append(std::string name, PJRT_NamedValue_Type type, size_t value_size) {
    const std::string& kept = texts_.emplace_back(std::move(name));
    PJRT_NamedValue& value = values_.emplace_back();
    value = {};
    value.struct_size = sizeof(PJRT_NamedValue);
    value.name = kept.c_str();
    value.name_size = kept.size();
    value.type = type;
    value.value_size = value_size;
    return value;
  }

  std::deque<std::string> texts_;  // a deque: its elements stay in place
  std::deque<std::vector<int64_t>> lists_;
  std::vector<PJRT_NamedValue> values_;
};

}  // namespace pathways::values

#endif  // PTPATHWAYS_VALUES_NAMED_VALUE_H_
