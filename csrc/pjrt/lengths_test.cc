// Modules whose length is a parameter, run by a real plugin beside those of each length, and what is refused.
#include "csrc/hlo/lengths.h"

#include <array>

#include "csrc/hlo/reduction_identity.h"
#include "csrc/pjrt/test_lengths.h"

namespace pathways::pjrt {
namespace {

// One step of a decoder with two heads: a new key and value behind the cache, and attention over all of them; the two
// newest are masked by a number that grows.
std::string Attention(int64_t length) {
  HloBuilder builder;
  builder.AddComputation(PairComputation(kMaximum, "maximum", kF32Type));
  const std::string cache = F32({1, 2, length, 4}), one = F32({1, 2, 1, 4}), grown = F32({1, 2, length + 1, 4});
  const std::string scores = F32({1, 2, 1, length + 1}), row = F32({1, 2, 1});
  const int64_t keys = builder.Parameter(cache), values = builder.Parameter(cache);
  const int64_t query = builder.Parameter(one), key = builder.Parameter(one), value = builder.Parameter(one);
  const int64_t k = builder.Add("concatenate", grown, {keys, key}, Dims({2}));
  const int64_t v = builder.Add("concatenate", grown, {values, value}, Dims({2}));
  const int64_t raw = builder.Add("dot", scores, {query, k}, DotOf({3}, {3}, {0, 1}, {0, 1}));
  const auto spread = [&](const std::string& shape, int64_t scalar) {
    return builder.Add("broadcast", shape, {scalar});
  };
  const int64_t half = builder.Add("constant", F32({}), {}, FloatConstant(0.5f));
  const int64_t scaled = builder.Add("multiply", scores, {raw, spread(scores, half)});
  const std::string indices = S32({1, 2, 1, length + 1});
  const int64_t iota = builder.Add("iota", indices, {}, Dims({3}));
  const int64_t last = builder.Add("constant", S32({}), {}, ConstantOf(DType::kS32, static_cast<uint64_t>(length - 1)));
  const int64_t seen =
      builder.Add("compare", Pred({1, 2, 1, length + 1}), {iota, spread(indices, last)}, Direction("LE"));
  const int64_t low = builder.Add("constant", F32({}), {}, FloatConstant(-1e9f));
  const int64_t masked = builder.Add("select", scores, {seen, scaled, spread(scores, low)});
  const int64_t lowest = builder.Add("constant", F32({}), {}, FloatConstant(-INFINITY));
  const int64_t highest = builder.Add("reduce", row, {masked, lowest}, Dims({3}) + Calls(kMaximum));
  const int64_t shifted =
      builder.Add("subtract", scores, {masked, builder.Add("broadcast", scores, {highest}, Dims({0, 1, 2}))});
  const int64_t exponent = builder.Add("exponential", scores, {shifted});
  const int64_t sum = builder.Add("reduce", row, {exponent, builder.Zero()}, Dims({3}) + Calls(HloBuilder::kReduction));
  const int64_t shares =
      builder.Add("divide", scores, {exponent, builder.Add("broadcast", scores, {sum}, Dims({0, 1, 2}))});
  const int64_t out = builder.Add("dot", one, {shares, v}, DotOf({3}, {2}, {0, 1}, {0, 1}));
  builder.Add("tuple", TupleShape({one, grown, grown, scores}), {out, k, v, shares});
  return builder.Build("attention" + std::to_string(length));
}

TEST(AttentionOfADecoderGrows) {
  NEED_PLUGIN(client);
  ExpectSameAtAllLengths(client, Attention);
  ASSERT_OK_AND_ASSIGN(const LengthModule made, WithLengthAsParameter(Attention(5), Attention(6), 16));
  EXPECT_EQ(made.open.size(), size_t{1});
  EXPECT_EQ(made.parameters[0].ToString(), "f32[1,2,16,4]");
  EXPECT_EQ(made.results[1].ToString(), "f32[1,2,16,4]");
  EXPECT_EQ(made.longest, 15);
  EXPECT(made.growing_parameters[0] == std::vector<GrowingDimension>(1, {2, 0}));
  EXPECT(made.growing_results[1] == std::vector<GrowingDimension>(1, {2, 1}));
  EXPECT(made.growing_parameters[2].empty() && made.growing_results[0].empty());
}

TEST(ConcatenationsGrow) {
  NEED_PLUGIN(client);
  const auto ids = [](int64_t length) {  // something before, and two behind
    HloBuilder builder;
    const auto s64 = [](int64_t n) { return ShapeProto(kS64Type, {1, n}); };
    const int64_t x = builder.Parameter(s64(length)), one = builder.Parameter(s64(1)), two = builder.Parameter(s64(2));
    const int64_t a = builder.Add("concatenate", s64(length + 1), {x, one}, Dims({1}));
    const int64_t b = builder.Add("concatenate", s64(length + 2), {two, x}, Dims({1}));
    const int64_t c = builder.Add("concatenate", s64(length + 6), {two, a, one, two}, Dims({1}));
    const int64_t d = builder.Add("concatenate", ShapeProto(kS64Type, {2, length}), {x, x}, Dims({0}));
    builder.Add("tuple",
                TupleShape({s64(length + 1), s64(length + 2), s64(length + 6), ShapeProto(kS64Type, {2, length})}),
                {a, b, c, d});
    return builder.Build("ids");
  };
  ExpectSameAtAllLengths(client, ids);
}

TEST(PartsOfWhatGrowsAreTaken) {
  NEED_PLUGIN(client);
  const auto make = [](bool within, int64_t length) {
    HloBuilder builder;
    builder.Parameter(F32({length}));  // which is therefore the length
    const int64_t x = builder.Parameter(F32({length + 3})), table = builder.Parameter(F32({40}));
    const int64_t at = builder.Parameter(S32({})), two = builder.Parameter(F32({2}));
    std::vector<int64_t> out;
    std::vector<std::string> shapes;
    const auto add = [&](const std::string& opcode, int64_t size, const std::vector<int64_t>& operands,
                         const std::string& fields) {
      out.push_back(builder.Add(opcode, F32({size}), operands, fields));
      shapes.push_back(F32({size}));
    };
    add("slice", 1, {x}, SliceOf(length + 2, length + 3));  // the last one
    add("slice", 2, {x}, SliceOf(length - 1, length + 1));  // two within
    add("slice", 2, {x}, SliceOf(0, 2));                    // the first two
    add("slice", length + 2, {x}, SliceOf(0, length + 2));  // without the last
    add("slice", length + 2, {x}, SliceOf(1, length + 3));  // without the first
    add("slice", length, {table}, SliceOf(0, length));
    add("slice", length, {table}, SliceOf(3, length + 3));
    add("dynamic-slice", 2, {x, at}, SliceSizes({2}));
    const int64_t far = builder.Add("constant", S32({}), {}, ConstantOf(DType::kS32, 1000));
    add("dynamic-slice", 2, {x, far}, SliceSizes({2}));
    if (within) add("dynamic-slice", length + 1, {x, at}, SliceSizes({length + 1}));
    add("dynamic-update-slice", length + 3, {x, two, at}, "");
    add("dynamic-update-slice", length + 3, {x, two, far}, "");
    builder.Add("tuple", TupleShape(shapes), out);
    return builder.Build("parts");
  };
  ExpectSameAtAllLengths(client, [&](int64_t length) { return make(false, length); });
  const auto within = [&](int64_t length) { return make(true, length); };
  EXPECT(Refusal(within).find("'dynamic-slice' of a size that grows out of a longer one") != std::string::npos);
}

TEST(RowsAreGathered) {
  NEED_PLUGIN(client);
  const auto gather = [](const std::vector<int64_t>& offset_dims, const std::vector<int64_t>& collapsed,
                         const std::vector<int64_t>& map, int64_t vector_dim, const std::vector<int64_t>& sizes) {
    ProtoWriter out;
    out.Bytes(33, IntegerFields(1, offset_dims) + IntegerFields(2, collapsed) + IntegerFields(3, map) +
                      IntegerFields(4, {vector_dim}));
    out.Raw(IntegerFields(34, sizes));
    return std::move(out).Take();
  };
  const auto make = [&](int64_t length) {
    HloBuilder builder;
    const int64_t ids = builder.Parameter(S32({1, length})), table = builder.Parameter(F32({4, 3}));
    const int64_t x = builder.Parameter(F32({length, 3})), few = builder.Parameter(S32({2}));
    const int64_t points = builder.Parameter(S32({3, 2}));
    const std::string embedded = F32({1, length, 3}), rows = F32({2, 3}), columns = F32({2, length}), three = F32({3});
    const int64_t a = builder.Add("gather", embedded, {table, ids}, gather({2}, {0}, {0}, 2, {1, 3}));
    const int64_t b = builder.Add("gather", rows, {x, few}, gather({1}, {0}, {0}, 1, {1, 3}));
    const int64_t c = builder.Add("gather", columns, {x, few}, gather({1}, {1}, {1}, 1, {length, 1}));
    const int64_t d = builder.Add("gather", three, {x, points}, gather({}, {0, 1}, {0, 1}, 1, {1, 1}));
    builder.Add("tuple", TupleShape({embedded, rows, columns, three}), {a, b, c, d});
    return builder.Build("gathers");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(ReductionsSeeOnlyTheLength) {
  NEED_PLUGIN(client);
  for (const int64_t type : {kF32Type, kBf16Type, kS32Type, kPredType}) {
    const bool real = type == kF32Type || type == kBf16Type;
    for (const std::string opcode : {"add", "multiply", "maximum", "minimum", "and", "or", "xor"}) {
      if (type == kPredType ? opcode == "add" : real && (opcode == "and" || opcode == "or" || opcode == "xor"))
        continue;
      const auto make = [&](int64_t length) {
        HloBuilder builder;
        builder.AddComputation(PairComputation(kOther, opcode, type));
        const auto shape = [type](const std::vector<int64_t>& dims) { return ShapeProto(type, dims); };
        const DType dtype = DTypeFromXlaPrimitive(type);
        const int64_t x = builder.Parameter(shape({2, length, 3}));
        // Where the reduced dimension has one element, XLA leaves out what a reduction starts with.
        const auto identity = IdentityOf(PairComputation(kOther, opcode, type), dtype);
        const int64_t first = builder.Add("constant", shape({}), {}, ConstantOf(dtype, identity->value_or(1)));
        const int64_t a = builder.Add("reduce", shape({2, 3}), {x, first}, Dims({1}) + Calls(kOther));
        const int64_t b = builder.Add("reduce", shape({}), {x, first}, Dims({0, 1, 2}) + Calls(kOther));
        const int64_t c = builder.Add("reduce", shape({2, length}), {x, first}, Dims({2}) + Calls(kOther));
        const int64_t d = builder.Add("reduce", shape({length}), {c, first}, Dims({0}) + Calls(kOther));
        builder.Add("tuple", TupleShape({shape({2, 3}), shape({}), shape({2, length}), shape({length})}), {a, b, c, d});
        return builder.Build("reductions");
      };
      const double tolerance = type == kBf16Type ? 0.05 : 1e-5;
      const std::string differs = Differs(client, make, 5, 16, {1, 6, 16}, tolerance);
      if (!differs.empty()) EXPECT_EQ(opcode + " of " + std::to_string(type), differs);
    }
  }
}

TEST(TheLargestIsFound) {
  NEED_PLUGIN(client);
  const auto make = [](int64_t length) {
    HloBuilder builder;
    builder.AddComputation(ArgMaxComputation(kOther));
    const int64_t x = builder.Parameter(F32({2, length}));
    const int64_t indices = builder.Add("iota", S32({2, length}), {}, Dims({1}));
    const int64_t lowest = builder.Add("constant", F32({}), {}, FloatConstant(-INFINITY));
    const int64_t zero = builder.Add("constant", S32({}), {}, ConstantOf(DType::kS32, 0));
    const std::string along = TupleShape({F32({2}), S32({2})}), across = TupleShape({F32({length}), S32({length})});
    const int64_t a = builder.Add("reduce", along, {x, indices, lowest, zero}, Dims({1}) + Calls(kOther));
    const int64_t b = builder.Add("reduce", across, {x, indices, lowest, zero}, Dims({0}) + Calls(kOther));
    const auto part = [&](int64_t of, int64_t i, const std::string& shape) {
      return builder.Add("get-tuple-element", shape, {of}, IntegerFields(13, {i}));
    };
    const std::vector<int64_t> parts{part(a, 0, F32({2})), part(a, 1, S32({2})), part(b, 0, F32({length})),
                                     part(b, 1, S32({length}))};
    builder.Add("tuple", TupleShape({F32({2}), S32({2}), F32({length}), S32({length})}), parts);
    return builder.Build("argmax");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(TwoDimensionsOfAnArrayGrow) {
  NEED_PLUGIN(client);
  const auto make = [](int64_t length) {  // a causal softmax-like sum over [T, T + 1], and products of all kinds
    HloBuilder builder;
    const std::string square = F32({length, length + 1}), column = F32({length}), turned = F32({length + 1, length});
    const int64_t x = builder.Parameter(F32({length, 3})), y = builder.Parameter(F32({length + 1, 3}));
    const int64_t scores = builder.Add("dot", square, {x, y}, DotOf({1}, {1}));
    const auto iota = [&](int64_t d) { return builder.Add("iota", S32({length, length + 1}), {}, Dims({d})); };
    const int64_t seen = builder.Add("compare", Pred({length, length + 1}), {iota(0), iota(1)}, Direction("GE"));
    const int64_t none = builder.Add("broadcast", square, {builder.Zero()});
    const int64_t masked = builder.Add("select", square, {seen, scores, none});
    const int64_t sum =
        builder.Add("reduce", column, {masked, builder.Zero()}, Dims({1}) + Calls(HloBuilder::kReduction));
    const int64_t all =
        builder.Add("reduce", F32({}), {masked, builder.Zero()}, Dims({0, 1}) + Calls(HloBuilder::kReduction));
    const int64_t other = builder.Add("transpose", turned, {masked}, Dims({1, 0}));
    const int64_t product = builder.Add("dot", F32({length, length}), {masked, other}, DotOf({1}, {0}));
    const int64_t one = builder.Add("dot", F32({}), {masked, other}, DotOf({0, 1}, {1, 0}));
    const int64_t spread = builder.Add("broadcast", F32({length, 2, length + 1}), {masked}, Dims({0, 2}));
    const int64_t flat = builder.Add("reshape", F32({length, 1, 2, length + 1}), {spread});
    builder.Add("tuple", TupleShape({column, F32({}), F32({length, length}), F32({}), F32({length, 1, 2, length + 1})}),
                {sum, all, product, one, flat});
    return builder.Build("squares");
  };
  ExpectSameAtAllLengths(client, make);
}

TEST(AMeanGrows) {
  NEED_PLUGIN(client);
  const auto mean = [](const std::string& opcode) {
    return [opcode](int64_t length) {
      HloBuilder builder;
      const int64_t x = builder.Parameter(F32({length}));
      const int64_t sum =
          builder.Add("reduce", F32({}), {x, builder.Zero()}, Dims({0}) + Calls(HloBuilder::kReduction));
      const auto count = static_cast<float>(length);
      const int64_t by = builder.Add("constant", F32({}), {}, FloatConstant(opcode == "divide" ? count : 1 / count));
      builder.Add(opcode, F32({}), {sum, by});
      return builder.Build("mean");
    };
  };
  ExpectSameAtAllLengths(client, mean("multiply"));
  ExpectSameAtAllLengths(client, mean("divide"));
}

TEST(ReshapesKeepWhatGrows) {
  NEED_PLUGIN(client);
  const auto make = [](const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    return [from, to](int64_t length) {  // -1: the length
      const auto at = [length](std::vector<int64_t> dims) {
        for (int64_t& dim : dims) dim = dim < 0 ? length : dim;
        return F32(dims);
      };
      HloBuilder builder;
      builder.Add("reshape", at(to), {builder.Parameter(at(from))});
      return builder.Build("reshape");
    };
  };
  ExpectSameAtAllLengths(client, make({2, -1, 6}, {2, -1, 2, 3}));
  ExpectSameAtAllLengths(client, make({4, -1, 3}, {2, 2, -1, 1, 3}));
  ExpectSameAtAllLengths(client, make({1, -1}, {-1, 1}));
  ExpectSameAtAllLengths(client, make({-1, 4, -1}, {-1, 2, 2, -1}));
  EXPECT(Refusal(make({2, -1, 3}, {-1, 2, 3})).find("'reshape' of a size that grows") != std::string::npos);
  EXPECT(Refusal(make({-1, 6}, {3, -1, 2})).find("'reshape' of a size that grows") != std::string::npos);
  EXPECT(Refusal(make({-1, -1, 4}, {-1, 4, -1})).find("'reshape' of a size that grows") != std::string::npos);
}

// A module of one instruction on f32[length, 3] with the shape, operands besides, and fields given.
ModuleOfLength OneInstruction(const std::string& opcode, const std::function<std::string(int64_t)>& shape,
                              const std::function<std::string(int64_t)>& fields, int64_t scalars = 0) {
  return [=](int64_t length) {
    HloBuilder builder;
    builder.AddComputation(PairComputation(kOther, "divide", kF32Type));
    std::vector<int64_t> operands{builder.Parameter(F32({length, 3}))};
    for (int64_t i = 0; i < scalars; ++i) operands.push_back(builder.Zero());
    builder.Add(opcode, shape(length), operands, fields(length));
    return builder.Build("one");
  };
}

TEST(OthersAreRefusedByName) {
  const auto same = [](int64_t length) { return F32({length, 3}); };
  const auto nothing = [](int64_t) { return std::string(); };
  for (const std::string opcode :
       {"sort", "fft", "cholesky", "while", "call", "conditional", "custom-call", "all-reduce", "all-gather", "rng",
        "reduce-window", "convolution", "triangular-solve", "map"}) {
    EXPECT(Refusal(OneInstruction(opcode, same, nothing)).find("'" + opcode + "' of a size that grows") !=
           std::string::npos);
  }
  const auto backwards = [](int64_t) { return Dims({0}); };
  EXPECT(Refusal(OneInstruction("reverse", same, backwards)).find("'reverse'") != std::string::npos);
  const auto quotients = [](int64_t) { return Dims({0}) + Calls(kOther); };
  const auto row = [](int64_t) { return F32({3}); };
  EXPECT(Refusal(OneInstruction("reduce", row, quotients, 1)).find("by a computation of its own") != std::string::npos);
}

TEST(OtherPairsAreRefused) {
  const auto doubled = [](int64_t length) {
    HloBuilder builder;
    builder.Add("negate", F32({2 * length}), {builder.Parameter(F32({2 * length}))});
    return builder.Build("double");
  };
  EXPECT(Refusal(doubled).find("grow by one") != std::string::npos);
  const auto twice = [](int64_t length) {
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({length}));
    builder.Add("concatenate", F32({2 * length}), {x, x}, Dims({0}));
    return builder.Build("twice");
  };
  EXPECT(Refusal(twice).find("grow by one") != std::string::npos);
  const auto other_window = [](int64_t length) {  // nearly as long as the array
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({length}));
    builder.Add("reduce-window", F32({length}), {x, builder.Zero()},
                WindowOf(length - 1, length - 2, 0) + Calls(HloBuilder::kReduction));
    return builder.Build("window");
  };
  EXPECT(Refusal(other_window).find("'reduce-window' of a size that grows") != std::string::npos);
  const auto only_results = [](int64_t length) {
    HloBuilder builder;
    builder.Add("broadcast", F32({length}), {builder.Parameter(F32({}))});
    return builder.Build("spread");
  };
  EXPECT(Refusal(only_results).find("a parameter that grows") != std::string::npos);
  const auto beyond = [](int64_t length) {
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({length})), table = builder.Parameter(F32({12}));
    builder.Add("add", F32({length}), {x, builder.Add("slice", F32({length}), {table}, SliceOf(0, length))});
    return builder.Build("beyond");
  };
  EXPECT(Refusal(beyond).find("beyond the 12") != std::string::npos);
  EXPECT_EQ(Refusal(beyond, 5, 12), "");
  const std::string five = Attention(5), six = Attention(6);
  EXPECT(!WithLengthAsParameter(six, five, 16).ok());
  EXPECT(!WithLengthAsParameter(five, five, 16).ok());
  EXPECT(!WithLengthAsParameter(five, six, 0).ok());
  EXPECT(!WithLengthAsParameter(five, six, int64_t{1} << 40).ok());
  const std::array<size_t, 1> unknown{1000};
  EXPECT(!WithLengthAsParameter(five, six, 16, unknown).ok());
}

TEST(LengthsAreReadOfSizes) {
  ASSERT_OK_AND_ASSIGN(const ModuleSizes five, ReadSizes(Attention(5)));
  ASSERT_OK_AND_ASSIGN(const ModuleSizes six, ReadSizes(Attention(6)));
  ASSERT_OK_AND_ASSIGN(const ModuleSizes nine, ReadSizes(Attention(9)));
  EXPECT(five.skeleton == six.skeleton && five.skeleton == nine.skeleton);
  EXPECT_EQ(five.sizes.size(), six.sizes.size());
  EXPECT_EQ(five.sizes[2], 5);
  EXPECT(LengthOf(five, six, nine) == 9);
  EXPECT(LengthOf(five, six, five) == 5);
  ModuleSizes other = nine;
  other.sizes.back() += 1;
  EXPECT(!LengthOf(five, six, other));
  other = nine;
  other.sizes[0] += 1;
  EXPECT(!LengthOf(five, six, other));
  other = nine;
  other.skeleton += "x";
  EXPECT(!LengthOf(five, six, other));
}

TEST(TruthIsReduced) {
  for (const int64_t type : {kPredType, kS32Type}) {
    for (const std::string opcode : {"and", "or"}) {
      ProtoWriter out;
      const std::string scalar = ShapeProto(type, {}), pred = ShapeProto(kPredType, {});
      const DType dtype = DTypeFromXlaPrimitive(type);
      WriteInstruction(1, "a", "parameter", scalar, {}, IntegerFields(9, {0}), &out);
      WriteInstruction(2, "b", "parameter", scalar, {}, IntegerFields(9, {1}), &out);
      WriteInstruction(3, "zero", "constant", scalar, {}, ConstantOf(dtype, 0), &out);
      WriteInstruction(4, "one", "constant", scalar, {}, ConstantOf(dtype, 1), &out);
      WriteInstruction(5, "x", "compare", pred, {1, 3}, Direction("NE"), &out);
      WriteInstruction(6, "y", "compare", pred, {2, 3}, Direction("NE"), &out);
      WriteInstruction(7, "both", opcode, pred, {5, 6}, "", &out);
      WriteInstruction(8, "result", "select", scalar, {7, 4, 3}, "", &out);
      out.Int64(6, 8);
      ASSERT_OK_AND_ASSIGN(const auto identity, IdentityOf(out.bytes(), dtype));
      EXPECT(identity == uint64_t{opcode == "and"});
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto none, IdentityOf(PairComputation(kOther, "subtract", kS32Type), DType::kS32));
  EXPECT(!none);
}

TEST(NumbersBesidesMayBeOpen) {
  const auto make = [](int64_t length) {
    HloBuilder builder;
    const std::string shape = F32({length});
    const auto spread = [&](float value) {
      return builder.Add("broadcast", shape, {builder.Add("constant", F32({}), {}, FloatConstant(value))});
    };
    const int64_t x = builder.Parameter(shape);
    builder.Add("add", shape, {builder.Add("multiply", shape, {x, spread(3)}), spread(static_cast<float>(length))});
    return builder.Build("line");
  };
  const std::array<size_t, 1> first{0};
  ASSERT_OK_AND_ASSIGN(const LengthModule one, WithLengthAsParameter(make(5), make(6), 16));
  EXPECT(one.open == std::vector<size_t>{1});
  ASSERT_OK_AND_ASSIGN(const LengthModule both, WithLengthAsParameter(make(5), make(6), 16, first));
  EXPECT(both.open == (std::vector<size_t>{0, 1}));
  ASSERT_OK_AND_ASSIGN(const HloModuleInfo info, ReadHloModule(both.module));
  ASSERT_EQ(info.parameters.size(), size_t{4});
  EXPECT_EQ(info.parameters[3].ToString(), "s32[]");
}

TEST(AliasesOfWhatGrowsAreLeftOut) {
  const auto make = [](int64_t length) {
    HloBuilder builder;
    const int64_t x = builder.Parameter(F32({length})), y = builder.Parameter(F32({length})),
                  z = builder.Parameter(F32({1}));
    const int64_t longer = builder.Add("concatenate", F32({length + 1}), {x, z}, Dims({0}));
    const int64_t same = builder.Add("negate", F32({length}), {y});
    const int64_t fixed = builder.Add("negate", F32({1}), {z});
    builder.Add("tuple", TupleShape({F32({length + 1}), F32({length}), F32({1})}), {longer, same, fixed});
    ProtoWriter aliases, module;
    for (int64_t i = 0; i < 3; ++i) {
      ProtoWriter entry;
      entry.Int64(1, i);
      entry.Int64(2, i);
      entry.Int64(4, 1);
      aliases.Bytes(1, entry.bytes());
    }
    module.Raw(builder.Build("aliases"));
    module.Bytes(8, aliases.bytes());
    return std::move(module).Take();
  };
  ASSERT_OK_AND_ASSIGN(const LengthModule made, WithLengthAsParameter(make(5), make(6), 16));
  ASSERT_OK_AND_ASSIGN(const HloModuleInfo info, ReadHloModule(made.module));
  EXPECT(info.aliased_parameters == std::vector<int64_t>{2});
}

TEST(AnyBytesAreSafeToGiveForLengths) {
  const std::string shorter = Attention(5), longer = Attention(6);
  for (size_t i = 0; i < longer.size(); ++i) {
    std::string a = shorter, b = longer;
    a[i] = static_cast<char>(a[i] ^ 0x55);
    b[i] = static_cast<char>(b[i] ^ 0x55);
    (void)WithLengthAsParameter(a, b, 16);
    (void)ReadSizes(std::string_view(longer).substr(0, i));
  }
}

}  // namespace
}  // namespace pathways::pjrt
