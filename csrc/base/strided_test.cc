// Boxes against a walk over every element.
#include "csrc/base/strided.h"

#include <numeric>
#include <random>

#include "csrc/testing/test.h"

namespace pathways {
namespace {

TEST(BoxesGoOutAndComeBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    TensorType tensor{DType::kS32, {}};
    BoxView box;
    const size_t rank = random() % 4;
    for (size_t d = 0; d < rank; ++d) {
      tensor.dims.push_back(1 + static_cast<int64_t>(random() % 5));
      box.start.push_back(static_cast<int64_t>(random()) % tensor.dims[d]);
      box.size.push_back(1 + static_cast<int64_t>(random()) % (tensor.dims[d] - box.start[d]));
    }
    ASSERT_OK(CheckBox(tensor, box));
    std::vector<int32_t> whole(static_cast<size_t>(tensor.ElementCount()));
    std::iota(whole.begin(), whole.end(), 0);
    std::vector<int32_t> dense(static_cast<size_t>(BoxBytes(tensor, box)) / 4, -1);
    GatherBox(tensor, box, whole.data(), 0, dense.size() * 4, dense.data());
    // Element by element.
    std::vector<int64_t> at(rank, 0);
    for (size_t i = 0; i < dense.size(); ++i) {
      int64_t flat = 0;
      for (size_t d = 0; d < rank; ++d) flat = flat * tensor.dims[d] + box.start[d] + at[d];
      EXPECT_EQ(dense[i], whole[static_cast<size_t>(flat)]);
      for (size_t d = rank; d-- > 0;) {
        if (++at[d] < box.size[d]) break;
        at[d] = 0;
      }
    }
    // One run of bytes or not.
    bool run = true;
    for (size_t i = 0; i < dense.size(); ++i) run = run && dense[i] == dense[0] + static_cast<int32_t>(i);
    EXPECT_EQ(RunOffset(tensor, box).value_or(-1), run ? int64_t{dense[0]} * 4 : int64_t{-1});
    // The same in pieces cut anywhere, as a sender reads it.
    const ByteSource source(whole.data(), tensor, box);
    const uint64_t total = dense.size() * 4;
    EXPECT_EQ(source.size(), total);
    EXPECT_EQ(source.run() != nullptr, run);
    std::vector<int32_t> read(dense.size(), -1);
    for (uint64_t offset = 0; offset < total;) {
      const uint64_t count = std::min<uint64_t>(total - offset, 1 + random() % 9);
      source.Copy(offset, count, reinterpret_cast<char*>(read.data()) + offset);
      offset += count;
    }
    EXPECT(read == dense);
    // Back, in pieces cut anywhere.
    std::vector<int32_t> back(whole.size(), -1);
    for (uint64_t offset = 0; offset < total;) {
      const uint64_t count = std::min<uint64_t>(total - offset, 1 + random() % 9);
      ScatterBox(tensor, box, reinterpret_cast<const char*>(dense.data()) + offset, offset, count, back.data());
      offset += count;
    }
    size_t written = 0;
    for (size_t i = 0; i < back.size(); ++i) {
      if (back[i] == -1) continue;
      EXPECT_EQ(back[i], whole[i]);
      ++written;
    }
    EXPECT_EQ(written, dense.size());
  }
}

TEST(BoxesOutsideAreRefused) {
  const TensorType tensor{DType::kF32, {4, 4}};
  EXPECT(!CheckBox(tensor, {{0}, {4}}).ok());
  EXPECT(!CheckBox(tensor, {{0, 1}, {4, 4}}).ok());
  EXPECT(!CheckBox(tensor, {{-1, 0}, {1, 1}}).ok());
  EXPECT(!CheckBox(tensor, {{0, 0}, {1, -1}}).ok());
  EXPECT(!CheckBox(tensor, {{0, 4}, {4, INT64_MAX}}).ok());
  EXPECT(CheckBox(tensor, {{0, 4}, {4, 0}}).ok());
}

}  // namespace
}  // namespace pathways
