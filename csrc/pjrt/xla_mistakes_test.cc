// Modules that XLA gets wrong, by a real plugin on one device and on several.
#include "csrc/hlo/xla_mistakes.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "csrc/hlo/edit.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/pjrt/test_support.h"

namespace pathways::pjrt {
namespace {

constexpr int64_t kTall = 8, kWide = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr hlo::MetBy kEverything{true, true};

// Of two dimensions, the first into four.
std::string FourRows() {
  ProtoWriter out;
  out.Int64(1, 3);
  for (const int64_t parts : {4, 1}) out.Int64(3, parts);
  for (int64_t i = 0; i < 4; ++i) out.Int64(4, i);
  return std::move(out).Take();
}

std::vector<float> Drawn(std::mt19937& random) {
  const float special[] = {kInfinity, -kInfinity, 0.0f, -0.0f, NAN, -NAN, 1e-42f, -1e-42f};
  std::vector<float> out;
  for (int64_t i = 0; i < kTall * kWide; ++i) {
    const uint32_t drawn = random();
    out.push_back(drawn % 16 < 8 && drawn % 5 == 0 ? special[drawn % 16]
                                                   : std::normal_distribution<float>(0, 100)(random));
  }
  return out;
}

// Of each device that takes part.
Result<std::vector<std::vector<float>>> Run(Client* client, const std::string& module, const std::vector<float>& values,
                                            int64_t partitions) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < partitions; ++i) ids.push_back(client->devices()[static_cast<size_t>(i)].id);
  PW_ASSIGN_OR_RETURN(const std::string options, ForDevices("", 1, partitions, ids));
  PW_ASSIGN_OR_RETURN(const auto executable, client->Compile(module, "hlo", options));
  const size_t part = values.size() / static_cast<size_t>(partitions);
  std::vector<Buffer> buffers;
  for (const int device : executable->devices()) {
    PW_ASSIGN_OR_RETURN(Buffer buffer,
                        client->BufferFromHost(values.data() + part * buffers.size(),
                                               TensorType{DType::kF32, {kTall / partitions, kWide}}, device));
    buffers.push_back(std::move(buffer));
  }
  std::vector<Buffer*> pointers;
  for (Buffer& buffer : buffers) pointers.push_back(&buffer);
  std::vector<std::span<Buffer* const>> rows;
  for (Buffer*& pointer : pointers) rows.emplace_back(&pointer, 1);
  ExecuteArgs args;
  args.arguments = rows;
  ExecuteOutputs outputs;
  PW_RETURN_IF_ERROR(executable->Execute(args, &outputs));
  std::vector<std::vector<float>> out;
  for (const auto& row : outputs.buffers) {
    PW_ASSIGN_OR_RETURN(std::vector<float> fetched, Fetch(row[0]));
    out.push_back(std::move(fetched));
  }
  return out;
}

std::vector<float> Wanted(const std::vector<float>& values, bool largest) {
  std::vector<float> out(values.begin(), values.begin() + kWide);
  for (size_t i = kWide; i < values.size(); ++i) {
    float& best = out[i % kWide];
    const bool better = largest ? values[i] > best : values[i] < best;
    if (std::isnan(values[i]) || better) best = std::isnan(best) ? best : values[i];
  }
  return out;
}

bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(ExtremesOfColumnsWithNansAreNaNOnOneDeviceAndOnFour) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  std::mt19937 random(7);
  int nans = 0;
  for (const std::string opcode : {"maximum", "minimum"}) {
    const std::string module = hlo::ExtremeOfColumns(opcode, kTall, kWide);
    ASSERT_OK_AND_ASSIGN(const std::string kept, hlo::AvoidXlaMistakes(module, kEverything));
    EXPECT(kept != module);
    ASSERT_OK_AND_ASSIGN(const std::string divided, hlo::AnnotateShardings(kept, {{FourRows()}}, {{std::string()}}));
    for (int i = 0; i < 20; ++i) {
      const std::vector<float> values = Drawn(random);
      const std::vector<float> wanted = Wanted(values, opcode == "maximum");
      for (const auto& [edited, devices] : {std::pair(&kept, 1), std::pair(&divided, 4)}) {
        ASSERT_OK_AND_ASSIGN(const auto found, Run(client, *edited, values, devices));
        EXPECT_EQ(found.size(), static_cast<size_t>(devices));
        for (const std::vector<float>& each : found) {
          for (size_t c = 0; c < kWide; ++c) EXPECT(Same(each[c], wanted[c]));
        }
      }
      for (const float value : wanted) nans += std::isnan(value) ? 1 : 0;
    }
  }
  EXPECT(nans > 10);
}

// x + y, where x is a column padded with minus infinity and y the same with 0; divided, the columns meet at their ends.
TEST(EachPaddingHasItsOwnValueOnSeveralDevices) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({kTall, kWide}));
  ProtoWriter config, fields;
  for (const int64_t by : {1, 0}) {
    ProtoWriter dimension;
    dimension.Int64(1, by);
    dimension.Int64(2, -by);
    config.Bytes(1, dimension.bytes());
  }
  fields.Bytes(21, config.bytes());
  const std::string shape = hlo::F32({kTall, kWide}), padding(fields.bytes());
  const int64_t low = builder.Add(
      "pad", shape, {x, builder.Add("constant", hlo::F32({}), {}, hlo::FloatConstant(-kInfinity))}, padding);
  const int64_t zero = builder.Add("pad", shape, {x, builder.Zero()}, padding);
  builder.Add("maximum", shape, {low, zero});
  ASSERT_OK_AND_ASSIGN(const std::string written, hlo::AvoidXlaMistakes(builder.Build("padded"), kEverything));
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::AnnotateShardings(written, {{FourRows()}}, {{FourRows()}}));
  std::mt19937 random(3);
  std::vector<float> values;
  for (int64_t i = 0; i < kTall * kWide; ++i) values.push_back(static_cast<float>(random() % 100) + 1);
  ASSERT_OK_AND_ASSIGN(const auto found, Run(client, module, values, 4));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t part = values.size() / 4;
    EXPECT_EQ(found[i / part][i % part], i < kWide ? 0 : values[i - kWide]);
  }
}

// The first six rows of x, added up in rows of zeros by what is in their first column, as s64.
TEST(RowsAreAddedUpByIndicesThatPartitionsDoNotDivide) {
  NEED_PLUGIN(client);
  NEED_DEVICES(client, 4);
  constexpr int64_t kRows = 6;
  const auto first = [](const std::vector<int64_t>& limits) {
    ProtoWriter fields;
    for (const int64_t limit : limits) {
      ProtoWriter range;
      range.Int64(2, limit);
      range.Int64(3, 1);
      fields.Bytes(17, range.bytes());
    }
    return std::string(fields.bytes());
  };
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({kTall, kWide}));
  const int64_t column = builder.Add("slice", hlo::F32({kTall, 1}), {x}, first({kTall, 1}));
  const int64_t rows =
      builder.Add("convert", hlo::ShapeProto(XlaPrimitiveFromDType(DType::kS64), {kTall, 1}), {column});
  const int64_t some =
      builder.Add("slice", hlo::ShapeProto(XlaPrimitiveFromDType(DType::kS64), {kRows, 1}), {rows}, first({kRows, 1}));
  const int64_t updates = builder.Add("slice", hlo::F32({kRows, kWide}), {x}, first({kRows, kWide}));
  const int64_t zeros = builder.Add("broadcast", hlo::F32({kTall, kWide}), {builder.Zero()});
  ProtoWriter numbers, fields;
  numbers.Int64(1, 1);  // of the updates the second dimension is a row's,
  numbers.Int64(2, 0);  // the first that of the indices, which say where in the first of the result
  numbers.Int64(3, 0);
  numbers.Int64(4, 1);
  fields.Bytes(48, numbers.bytes());
  fields.Int64(38, hlo::HloBuilder::kReduction);
  builder.Add("scatter", hlo::F32({kTall, kWide}), {zeros, some, updates}, std::string(fields.bytes()));
  ASSERT_OK_AND_ASSIGN(const std::string written, hlo::AvoidXlaMistakes(builder.Build("rows"), kEverything));
  ASSERT_OK_AND_ASSIGN(const std::string module, hlo::AnnotateShardings(written, {{FourRows()}}, {{std::string()}}));
  // Two go into one row, and three nowhere: before the first, after the last, and after that only as s64.
  const float into[] = {2, 0, 2, -1, 100, 8589934593.0f, 3, 3};
  std::vector<float> values, wanted(kTall * kWide, 0.0f);
  for (int64_t i = 0; i < kTall * kWide; ++i) {
    values.push_back(i % kWide == 0 ? into[i / kWide] : static_cast<float>(i));
    const float row = into[i / kWide];
    if (i < kRows * kWide && row >= 0 && row < kTall) wanted[static_cast<size_t>(row) * kWide + i % kWide] += values[i];
  }
  ASSERT_OK_AND_ASSIGN(const auto found, Run(client, module, values, 4));
  for (const std::vector<float>& each : found) EXPECT(each == wanted);
}

TEST(AMaskHidesNoNan) {
  NEED_PLUGIN(client);
  hlo::HloBuilder builder;
  const int64_t x = builder.Parameter(hlo::F32({4})), limit = builder.Parameter(hlo::F32({4}));
  ProtoWriter above;
  above.Bytes(63, "GT");
  const int64_t mask = builder.Add("compare", hlo::ShapeProto(1, {4}), {x, limit}, std::string(above.bytes()));
  builder.Add("multiply", hlo::F32({4}), {x, builder.Add("convert", hlo::F32({4}), {mask})});
  const std::string module = builder.Build("masked");
  ASSERT_OK_AND_ASSIGN(const std::string kept, hlo::AvoidXlaMistakes(module, {}));
  const TensorType type{DType::kF32, {4}};
  const std::vector<float> values{2, NAN, -kInfinity, -3}, limits{0, 0, 0, 0};
  ASSERT_OK_AND_ASSIGN(const auto found, RunTwo(client, kept, type, values, type, limits));
  for (size_t i = 0; i < values.size(); ++i) EXPECT(Same(found[i], values[i] * (values[i] > 0 ? 1.0f : 0.0f)));
}

// The absolute value of an integer, or of its square; 0 where what XLA takes for positive is below zero.
TEST(IntegersThatWrapRoundKeepTheirSigns) {
  NEED_PLUGIN(client);
  const std::vector<float> values{3, -46341, 65537, -2147483648.0f};
  const std::string integers = hlo::ShapeProto(XlaPrimitiveFromDType(DType::kS32), {4});
  for (const bool squares : {true, false}) {
    hlo::HloBuilder builder;
    const int64_t x = builder.Add("convert", integers, {builder.Parameter(hlo::F32({4}))});
    const int64_t zeros = builder.Parameter(hlo::F32({4}));
    const int64_t square = squares ? builder.Add("multiply", integers, {x, x}) : x;
    const int64_t size = builder.Add("abs", integers, {square});
    ProtoWriter below;
    below.Bytes(63, "LT");
    const int64_t negative =
        builder.Add("compare", hlo::ShapeProto(1, {4}),
                    {squares ? square : size, builder.Add("convert", integers, {zeros})}, std::string(below.bytes()));
    builder.Add("select", hlo::F32({4}), {negative, zeros, builder.Add("convert", hlo::F32({4}), {size})});
    ASSERT_OK_AND_ASSIGN(const std::string kept, hlo::AvoidXlaMistakes(builder.Build("integers"), {}));
    const TensorType type{DType::kF32, {4}};
    ASSERT_OK_AND_ASSIGN(const auto found, RunTwo(client, kept, type, values, type, std::vector<float>(4, 0)));
    const std::vector<float> wanted =
        squares ? std::vector<float>{9, 0, 131073, 0} : std::vector<float>{3, 46341, 65537, 0};
    EXPECT(found == wanted);
  }
}

}  // namespace
}  // namespace pathways::pjrt
