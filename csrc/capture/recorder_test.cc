#include "csrc/capture/recorder.h"

#include <set>
#include <string>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::capture {
namespace {

TEST(RecordingsTakeTurns) {
  EXPECT(!Recorder::active());
  Recorder::Note(RecordedFetch{});  // nobody records
  ASSERT_OK(Recorder::Start());
  EXPECT(Recorder::active());
  EXPECT(!Recorder::Start().ok());
  Recorder::Note(RecordedUpload{nullptr, 7});
  Recorder::Note(RecordedFetch{});
  Recorder::Note(RecordedGang{"function 'f'"});
  const Recording recording = Recorder::Stop();
  EXPECT(!Recorder::active());
  EXPECT_EQ(recording.size(), size_t{3});
  const auto* upload = std::get_if<RecordedUpload>(&recording[0]);
  EXPECT(upload != nullptr && upload->digest == 7);
  const auto* gang = std::get_if<RecordedGang>(&recording[2]);
  EXPECT(gang != nullptr && gang->what == "function 'f'");
  EXPECT(Recorder::Stop().empty());
  ASSERT_OK(Recorder::Start());
  EXPECT(Recorder::Stop().empty());
}

TEST(DigestsDifferByContentAndLength) {
  std::set<uint64_t> seen;
  size_t count = 0;
  for (size_t size = 0; size < 100; ++size) {
    std::string bytes(size, '\0');
    seen.insert(Digest(bytes.data(), size));
    ++count;
    for (size_t at = 0; at < size; ++at) {
      bytes[at] = 1;
      seen.insert(Digest(bytes.data(), size));
      ++count;
      bytes[at] = 0;
    }
  }
  EXPECT_EQ(seen.size(), count);
  const std::vector<float> values(1000, 0.5f);
  const std::vector<float> same = values;
  EXPECT_EQ(Digest(values.data(), 4000), Digest(same.data(), 4000));
}

}  // namespace
}  // namespace pathways::capture
