// Growing arrays in windows, pads, scatters and normalizations, run by a real plugin beside those of each length.
#include "csrc/hlo/length_windows.h"

#include <array>

#include "csrc/pjrt/test_lengths.h"

namespace pathways::pjrt {
namespace {

TEST(SumsOfAllBeforeGrow) {
  NEED_PLUGIN(client);
  const auto make = [](int64_t length) {
    HloBuilder builder;
    const std::string shape = F32({length}), rows = F32({length, 4}), grown = F32({length + 1});
    const int64_t x = builder.Parameter(shape), y = builder.Parameter(rows), z = builder.Parameter(F32({1}));
    const auto sum = [&](const std::string& of, int64_t operand, const std::string& window) {
      return builder.Add("reduce-window", of, {operand, builder.Zero()}, window + Calls(HloBuilder::kReduction));
    };
    const int64_t longer = builder.Add("concatenate", grown, {x, z}, Dims({0}));
    const int64_t a = sum(shape, x, WindowOf(length, length - 1, 0)),
                  b = sum(shape, x, WindowOf(length, 0, length - 1));
    const int64_t c = sum(grown, longer, WindowOf(length + 1, length, 0));
    ProtoWriter one, four, window, fields;
    for (const uint32_t number : {1u, 2u, 5u, 6u}) one.Int64(number, 1);
    for (const uint32_t number : {2u, 5u, 6u}) four.Int64(number, 1);
    four.Int64(1, 4);
    four.Int64(3, 3);
    window.Bytes(1, one.bytes());
    window.Bytes(1, four.bytes());
    fields.Bytes(15, window.bytes());
    builder.Add("tuple", TupleShape({shape, shape, grown, rows}), {a, b, c, sum(rows, y, fields.bytes())});
    return builder.Build("sums");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(PadsAroundWhatGrows) {
  NEED_PLUGIN(client);
  const auto make = [](int64_t length) {
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({length})), one = builder.Parameter(F32({1}));
    const int64_t around = builder.Parameter(F32({}));
    std::vector<int64_t> out;
    std::vector<std::string> shapes;
    const auto pad = [&](int64_t operand, int64_t size, int64_t low, int64_t high) {
      out.push_back(builder.Add("pad", F32({size}), {operand, around}, PaddingOf(low, high)));
      shapes.push_back(F32({size}));
    };
    pad(x, length + 1, 0, 1);
    pad(x, length + 5, 3, 2);
    pad(x, length + 1, -1, 2);
    pad(one, length + 3, 2, length);
    const int64_t sum =
        builder.Add("reduce", F32({}), {out[1], builder.Zero()}, Dims({0}) + Calls(HloBuilder::kReduction));
    out.push_back(sum);
    shapes.push_back(F32({}));
    builder.Add("tuple", TupleShape(shapes), out);
    return builder.Build("pads");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(WhatIsScatteredGrows) {
  NEED_PLUGIN(client);
  const auto scatter = [](const std::vector<int64_t>& window, const std::vector<int64_t>& inserted,
                          const std::vector<int64_t>& map, int64_t vector_dim) {
    ProtoWriter out;
    out.Bytes(48, IntegerFields(1, window) + IntegerFields(2, inserted) + IntegerFields(3, map) +
                      IntegerFields(4, {vector_dim}));
    out.Raw(Calls(HloBuilder::kReduction) + IntegerFields(67, {1}) + IntegerFields(69, {1}));
    return std::move(out).Take();
  };
  const auto make = [&](int64_t length) {
    HloBuilder builder;
    const int64_t ids = builder.Parameter(S32({length})), values = builder.Parameter(F32({length}));
    const int64_t counts = builder.Parameter(F32({6})), few = builder.Parameter(S32({3}));
    const int64_t three = builder.Parameter(F32({3})), rows = builder.Parameter(F32({length, 3}));
    const int64_t columns = builder.Parameter(F32({2, length}));
    const int64_t two = builder.Parameter(ShapeProto(kS64Type, {2, 1}));
    const int64_t a = builder.Add("scatter", F32({6}), {counts, ids, values}, scatter({}, {0}, {0}, 1));
    const int64_t b = builder.Add("scatter", F32({length}), {values, few, three}, scatter({}, {0}, {0}, 1));
    const int64_t c = builder.Add("scatter", F32({length, 3}), {rows, two, columns}, scatter({1}, {1}, {1}, 1));
    const int64_t d = builder.Add("scatter", F32({length}), {values, ids, values}, scatter({}, {0}, {0}, 1));
    builder.Add("tuple", TupleShape({F32({6}), F32({length}), F32({length, 3}), F32({length})}), {a, b, c, d});
    return builder.Build("scatters");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(FeaturesAreNormalizedEach) {
  NEED_PLUGIN(client);
  const auto make = [](int64_t feature) {
    return [feature](int64_t length) {
      HloBuilder builder;
      const std::string shape = F32({2, length, 4}), features = F32({feature == 1 ? length : 4});
      const int64_t x = builder.Parameter(shape), scale = builder.Parameter(features), by = builder.Parameter(features);
      const float epsilon = 1e-3f;
      ProtoWriter fields;
      uint32_t bits = 0;
      std::memcpy(&bits, &epsilon, sizeof bits);
      std::string encoded{static_cast<char>(0xc5), 1};  // field 24, of four bytes
      encoded.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      fields.Raw(encoded + IntegerFields(25, {feature}));
      const int64_t all =
          builder.Add("batch-norm-training", TupleShape({shape, features, features}), {x, scale, by}, fields.bytes());
      builder.Add("get-tuple-element", shape, {all}, IntegerFields(13, {0}));
      return builder.Build("normal");
    };
  };
  ExpectSameAtAllLengths(client, make(1));
  EXPECT(Refusal(make(2)).find("over which it goes") != std::string::npos);
}

TEST(CountedConstantsGrow) {
  NEED_PLUGIN(client);
  const auto make = [](bool squares) {
    return [squares](int64_t length) {
      HloBuilder builder;
      const std::string shape = ShapeProto(kS64Type, {length});
      ProtoWriter literal, fields;
      literal.Bytes(1, shape);
      for (int64_t i = 0; i < length; ++i) literal.Int64(5, squares ? i * i : 3 - 2 * i);
      fields.Bytes(8, literal.bytes());
      builder.Add("add", shape, {builder.Parameter(shape), builder.Add("constant", shape, {}, fields.bytes())});
      return builder.Build("count");
    };
  };
  EXPECT_EQ(Differs(client, make(false), 5, 16, {2, 5, 6, 16}), "");
  EXPECT(Refusal(make(true)).find("differ in sizes and numbers only") != std::string::npos);
}

}  // namespace
}  // namespace pathways::pjrt
