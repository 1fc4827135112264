// What the tests of lengths share: fields of instructions, computations for reductions, and runs of one module at many
// lengths beside the modules of those lengths, with garbage behind the length of each argument.
//
// Ownership: plain values. Threads: the tests'.
#ifndef PTPATHWAYS_PJRT_TEST_LENGTHS_H_
#define PTPATHWAYS_PJRT_TEST_LENGTHS_H_

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "csrc/hlo/hlo.h"
#include "csrc/hlo/lengths.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/compile_options.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {

using namespace hlo;

constexpr int64_t kPredType = 1, kS32Type = 4, kS64Type = 5, kF32Type = 11, kBf16Type = 16;  // PrimitiveType

inline std::string IntegerFields(uint32_t number, const std::vector<int64_t>& values) {
  ProtoWriter out;
  for (const int64_t value : values) out.Int64(number, value);
  return std::move(out).Take();
}
inline std::string Dims(const std::vector<int64_t>& values) { return IntegerFields(14, values); }
inline std::string SliceSizes(const std::vector<int64_t>& values) { return IntegerFields(20, values); }
inline std::string Calls(int64_t computation) { return IntegerFields(38, {computation}); }
inline std::string Direction(std::string_view direction) {
  ProtoWriter out;
  out.Bytes(63, direction);
  return std::move(out).Take();
}
// Of one dimension, each stride and dilation of which is 1.
inline std::string WindowOf(int64_t size, int64_t low, int64_t high) {
  ProtoWriter dimension, window, out;
  for (const auto& [number, value] : {std::pair(1u, size), std::pair(2u, int64_t{1}), std::pair(3u, low),
                                      std::pair(4u, high), std::pair(5u, int64_t{1}), std::pair(6u, int64_t{1})}) {
    dimension.Int64(number, value);
  }
  window.Bytes(1, dimension.bytes());
  out.Bytes(15, window.bytes());
  return std::move(out).Take();
}
inline std::string DotOf(const std::vector<int64_t>& left, const std::vector<int64_t>& right,
                         const std::vector<int64_t>& left_batch = {}, const std::vector<int64_t>& right_batch = {}) {
  ProtoWriter out;
  out.Bytes(30, IntegerFields(1, left) + IntegerFields(2, right) + IntegerFields(3, left_batch) +
                    IntegerFields(4, right_batch));
  return std::move(out).Take();
}
inline std::string ConstantOf(DType dtype, uint64_t bits) {
  ProtoWriter out;
  out.Bytes(8, LiteralOf(dtype, bits).value_or(""));
  return std::move(out).Take();
}

// The computation of an operation on two scalars.
inline std::string PairComputation(int64_t id, const std::string& opcode, int64_t element_type) {
  ProtoWriter out, shape;
  const std::string scalar = ShapeProto(element_type, {});
  const std::string name = "pair" + std::to_string(id);
  out.Bytes(1, name);
  for (int64_t i = 0; i < 2; ++i) {
    WriteInstruction(i + 1, name + "p" + std::to_string(i), "parameter", scalar, {}, IntegerFields(9, {i}), &out);
    shape.Bytes(1, scalar);
  }
  WriteInstruction(3, name + "r", opcode, scalar, {1, 2}, "", &out);
  shape.Bytes(2, scalar);
  for (const char* each : {"a", "b"}) shape.Bytes(3, each);
  out.Bytes(4, shape.bytes());
  out.Int64(5, id);
  out.Int64(6, 3);
  return std::move(out).Take();
}

// The larger of two numbers with the smaller of their indices, as XLA's own library writes it.
inline std::string ArgMaxComputation(int64_t id) {
  const std::string real = F32({}), index = ShapeProto(kS32Type, {}), pred = ShapeProto(kPredType, {});
  ProtoWriter out, shape;
  out.Bytes(1, "argmax");
  const std::vector<std::string> types{real, index, real, index};
  for (int64_t i = 0; i < 4; ++i) {
    const std::string name = "argmax.p" + std::to_string(i);
    WriteInstruction(i + 1, name, "parameter", types[static_cast<size_t>(i)], {}, IntegerFields(9, {i}), &out);
    shape.Bytes(1, types[static_cast<size_t>(i)]);
  }
  WriteInstruction(5, "argmax.ge", "compare", pred, {1, 3}, Direction("GE"), &out);
  WriteInstruction(6, "argmax.v", "select", real, {5, 1, 3}, "", &out);
  WriteInstruction(7, "argmax.i", "select", index, {5, 2, 4}, "", &out);
  WriteInstruction(8, "argmax.eq", "compare", pred, {1, 3}, Direction("EQ"), &out);
  WriteInstruction(9, "argmax.min", "minimum", index, {2, 4}, "", &out);
  WriteInstruction(10, "argmax.tie", "select", index, {8, 9, 7}, "", &out);
  const std::string both = TupleShape({real, index});
  WriteInstruction(11, "argmax.r", "tuple", both, {6, 10}, "", &out);
  shape.Bytes(2, both);
  for (const char* each : {"a", "b", "c", "d"}) shape.Bytes(3, each);
  out.Bytes(4, shape.bytes());
  out.Int64(5, id);
  out.Int64(6, 11);
  return std::move(out).Take();
}

struct HostArray {
  TensorType type;
  std::vector<char> bytes;

  explicit HostArray(TensorType of) : type(std::move(of)), bytes(static_cast<size_t>(type.ByteSize())) {}
};

// Real numbers from -2 to 2, integers from 0 to 5.
inline HostArray RandomArray(const TensorType& type, std::mt19937* random) {
  HostArray out(type);
  for (int64_t i = 0; i < type.ElementCount(); ++i) {
    const float real = std::uniform_real_distribution<float>(-2, 2)(*random);
    const int64_t whole = std::uniform_int_distribution<int64_t>(0, 5)(*random);
    uint64_t bits = static_cast<uint64_t>(whole);
    if (type.dtype == DType::kPred) bits = whole != 0;
    if (type.dtype == DType::kF32 || type.dtype == DType::kBF16) {
      uint32_t word = 0;
      std::memcpy(&word, &real, sizeof word);
      bits = type.dtype == DType::kF32 ? word : word >> 16;
    }
    const auto size = static_cast<size_t>(DTypeBytes(type.dtype));
    std::memcpy(out.bytes.data() + static_cast<size_t>(i) * size, &bits, size);
  }
  return out;
}

// NaN and infinities, and large integers.
inline void FillWithGarbage(HostArray* array) {
  const auto size = static_cast<size_t>(DTypeBytes(array->type.dtype));
  for (size_t i = 0; i * size < array->bytes.size(); ++i) {
    uint64_t bits = i % 2 == 0 ? 0x7fffffffffffff5full : 0x8000000000000001ull;
    if (array->type.dtype == DType::kS32) bits = i % 2 == 0 ? 0x7ffffff5u : 0x80000003u;
    if (array->type.dtype == DType::kPred) bits = i % 2;
    if (array->type.dtype == DType::kF32) bits = i % 3 == 0 ? 0x7fc00000u : i % 3 == 1 ? 0x7f800000u : 0xff800000u;
    if (array->type.dtype == DType::kBF16) bits = i % 3 == 0 ? 0x7fc0u : i % 3 == 1 ? 0x7f80u : 0xff80u;
    std::memcpy(array->bytes.data() + i * size, &bits, size);
  }
}

// Calls `visit` with the offsets, in elements, of each element of `small` in it and in `large`.
inline void EachInBoth(const std::vector<int64_t>& small, const std::vector<int64_t>& large,
                       const std::function<void(size_t, size_t)>& visit) {
  int64_t count = 1;
  for (const int64_t dim : small) count *= dim;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = small.size(); d-- > 0;) {
      at += rest % small[d] * stride;
      stride *= large[d];
      rest /= small[d];
    }
    visit(static_cast<size_t>(i), static_cast<size_t>(at));
  }
}

inline Result<std::shared_ptr<Executable>> CompileForOne(Client* client, const std::string& module) {
  PW_ASSIGN_OR_RETURN(const std::string options, ForOneDevice(""));
  PW_ASSIGN_OR_RETURN(auto executable, client->Compile(module, "hlo", options));
  return std::shared_ptr<Executable>(std::move(executable));
}

inline Result<std::vector<HostArray>> RunArrays(Client* client, Executable* executable,
                                                const std::vector<HostArray>& arguments) {
  std::vector<Buffer> buffers;
  for (const HostArray& argument : arguments) {
    PW_ASSIGN_OR_RETURN(Buffer buffer, client->BufferFromHost(argument.bytes.data(), argument.type, 0));
    buffers.push_back(std::move(buffer));
  }
  PW_ASSIGN_OR_RETURN(const ExecuteOutputs outputs, ExecuteOn(*executable, buffers));
  std::vector<HostArray> out;
  for (const Buffer& buffer : outputs.buffers.at(0)) {
    HostArray& array = out.emplace_back(buffer.type());
    Waiter waiter;
    buffer.ToHost(array.bytes.data(), array.bytes.size(), waiter.Callback());
    PW_RETURN_IF_ERROR(waiter.Wait());
  }
  return out;
}

inline double ElementOf(const HostArray& array, size_t at) {
  const auto size = static_cast<size_t>(DTypeBytes(array.type.dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, array.bytes.data() + at * size, size);
  if (array.type.dtype == DType::kF32 || array.type.dtype == DType::kBF16) {
    const auto word = static_cast<uint32_t>(array.type.dtype == DType::kF32 ? bits : bits << 16);
    float real = 0;
    std::memcpy(&real, &word, sizeof real);
    return real;
  }
  if (array.type.dtype == DType::kS32) return static_cast<int32_t>(bits);
  return static_cast<double>(static_cast<int64_t>(bits));
}

using ModuleOfLength = std::function<std::string(int64_t length)>;

// Whether the module of the lengths `at` and `at` + 1 computes at each of `lengths` what the module of it does. Empty,
// or what went wrong.
inline std::string Differs(Client* client, const ModuleOfLength& make, int64_t at, int64_t bound,
                           const std::vector<int64_t>& lengths, double tolerance = 1e-5) {
  const std::string shorter = make(at), longer = make(at + 1);
  const Result<ModuleSizes> short_sizes = ReadSizes(shorter), long_sizes = ReadSizes(longer);
  if (!short_sizes.ok() || !long_sizes.ok()) return "no sizes";
  const Result<LengthModule> made = WithLengthAsParameter(shorter, longer, bound);
  if (!made.ok()) return made.status().ToString();
  const auto executable = CompileForOne(client, made->module);
  if (!executable.ok()) return executable.status().ToString();
  std::mt19937 random(7);
  for (const int64_t length : lengths) {
    if (length > made->longest) continue;
    const std::string where = " at length " + std::to_string(length) + " of " + std::to_string(bound);
    const std::string special = make(length);
    const Result<ModuleSizes> sizes = ReadSizes(special);
    const Result<HloModuleInfo> info = ReadHloModule(special);
    if (!sizes.ok() || !info.ok()) return "no sizes" + where;
    if (LengthOf(*short_sizes, *long_sizes, *sizes) != length) return "another length" + where;
    std::vector<HostArray> given, bounded;
    for (size_t i = 0; i < info->parameters.size(); ++i) {
      given.push_back(RandomArray(info->parameters[i], &random));
      bounded.emplace_back(made->parameters[i]);
      FillWithGarbage(&bounded.back());
      const auto size = static_cast<size_t>(DTypeBytes(given.back().type.dtype));
      EachInBoth(given.back().type.dims, bounded.back().type.dims, [&](size_t from, size_t to) {
        std::memcpy(bounded.back().bytes.data() + to * size, given.back().bytes.data() + from * size, size);
      });
      for (const GrowingDimension& each : made->growing_parameters[i]) {
        if (info->parameters[i].dims[each.dimension] != length + each.offset) return "another offset" + where;
      }
    }
    for (const size_t position : made->open) {
      HostArray& number = bounded.emplace_back(TensorType{sizes->numbers[position].dtype, {}});
      std::memcpy(number.bytes.data(), &sizes->numbers[position].bits, number.bytes.size());
    }
    HostArray& last = bounded.emplace_back(TensorType{DType::kS32, {}});
    const auto length_bits = static_cast<int32_t>(length);
    std::memcpy(last.bytes.data(), &length_bits, sizeof length_bits);
    const auto special_executable = CompileForOne(client, special);
    if (!special_executable.ok()) return special_executable.status().ToString() + where;
    const auto want = RunArrays(client, special_executable->get(), given);
    const auto got = RunArrays(client, executable->get(), bounded);
    if (!want.ok()) return want.status().ToString() + where;
    if (!got.ok()) return got.status().ToString() + where;
    if (want->size() != got->size() || want->size() != made->results.size()) return "other results" + where;
    std::string wrong;
    for (size_t i = 0; i < want->size(); ++i) {
      const HostArray &a = (*want)[i], &b = (*got)[i];
      if (b.type != made->results[i]) return "result " + b.type.ToString() + where;
      for (const GrowingDimension& each : made->growing_results[i]) {
        if (a.type.dims[each.dimension] != length + each.offset) return "another offset of a result" + where;
      }
      EachInBoth(a.type.dims, b.type.dims, [&](size_t from, size_t to) {
        const double x = ElementOf(a, from), y = ElementOf(b, to);
        const bool same =
            x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= tolerance * (1 + std::abs(x));
        if (!same && wrong.empty()) {
          wrong = "result " + std::to_string(i) + ", element " + std::to_string(from) + ": expected " +
                  std::to_string(x) + ", got " + std::to_string(y) + where;
        }
      });
    }
    if (!wrong.empty()) return wrong;
  }
  return "";
}

inline constexpr int64_t kMaximum = 20, kOther = 21;  // computations beside HloBuilder::kReduction
inline const std::vector<int64_t> kLengths{1, 2, 5, 6, 10, 11, 12, 13, 14, 15, 16};

inline std::string S32(const std::vector<int64_t>& dims) { return ShapeProto(kS32Type, dims); }
inline std::string Pred(const std::vector<int64_t>& dims) { return ShapeProto(kPredType, dims); }

inline void ExpectSameAtAllLengths(Client* client, const ModuleOfLength& make) {
  EXPECT_EQ(Differs(client, make, 5, 16, kLengths), "");
  EXPECT_EQ(Differs(client, make, 5, 9, {1, 3, 5, 6, 7, 8, 9}), "");
}

// What the refusal of a pair says, or nothing where it is not refused.
inline std::string Refusal(const ModuleOfLength& make, int64_t at = 5, int64_t bound = 16) {
  const Result<LengthModule> made = WithLengthAsParameter(make(at), make(at + 1), bound);
  if (made.ok()) return "";
  return made.status().code() == Code::kUnimplemented ? made.status().ToString() : "another error";
}

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_TEST_LENGTHS_H_
