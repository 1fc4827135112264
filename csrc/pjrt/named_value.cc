#include "csrc/pjrt/named_value.h"

#include <type_traits>

namespace pathways::pjrt {
namespace {

PJRT_NamedValue ToNamedValue(const std::string& name, const NamedValue& value) {
  PJRT_NamedValue out{};
  out.struct_size = PjrtStructSize<PJRT_NamedValue>::value;
  out.name = name.data();
  out.name_size = name.size();
  out.value_size = 1;
  std::visit(
      [&out](const auto& held) {
        using T = std::remove_cvref_t<decltype(held)>;
        if constexpr (std::is_same_v<T, int64_t>) {
          out.type = PJRT_NamedValue_kInt64;
          out.int64_value = held;
        } else if constexpr (std::is_same_v<T, bool>) {
          out.type = PJRT_NamedValue_kBool;
          out.bool_value = held;
        } else if constexpr (std::is_same_v<T, float>) {
          out.type = PJRT_NamedValue_kFloat;
          out.float_value = held;
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.type = PJRT_NamedValue_kString;
          out.string_value = held.data();
          out.value_size = held.size();
        } else {
          out.type = PJRT_NamedValue_kInt64List;
          out.int64_array_value = held.data();
          out.value_size = held.size();
        }
      },
      value);
  return out;
}

NamedValue FromNamedValue(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64List:
      return std::vector<int64_t>(value.int64_array_value, value.int64_array_value + value.value_size);
    case PJRT_NamedValue_kFloat:
      return value.float_value;
    case PJRT_NamedValue_kBool:
      return value.bool_value;
    case PJRT_NamedValue_kInt64:
      break;
  }
  return value.int64_value;
}

}  // namespace

std::vector<PJRT_NamedValue> ToNamedValues(const NamedValues& values) {
  std::vector<PJRT_NamedValue> out;
  out.reserve(values.size());
  for (const auto& [name, value] : values) out.push_back(ToNamedValue(name, value));
  return out;
}

NamedValues FromNamedValues(const PJRT_NamedValue* values, size_t count) {
  NamedValues out;
  for (size_t i = 0; i < count; ++i) {
    out.emplace(std::string(values[i].name, values[i].name_size), FromNamedValue(values[i]));
  }
  return out;
}

}  // namespace pathways::pjrt
