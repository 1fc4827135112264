// Every request to an input pipeline is answered, whatever becomes of it.
#include "csrc/worker/pipeline.h"

#include <atomic>
#include <future>

#include "csrc/testing/test.h"

namespace pathways::worker {
namespace {

TEST(WhatABrokenPipelineIsAskedBeforeItClosesIsAnswered) {
  std::promise<Status> opened;
  PipelineOptions options;
  options.python = options.script = "/bin/true";  // ends without an answer
  Result<std::unique_ptr<Pipeline>> pipeline = Pipeline::Start(
      std::move(options), "", [&](const Status& status, std::string, PipelineValues) { opened.set_value(status); });
  ASSERT_OK(pipeline.status());
  std::future<Status> outcome = opened.get_future();
  ASSERT(outcome.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  EXPECT(!outcome.get().ok());
  constexpr int kAsked = 1000;
  std::atomic<int> answered{0};
  for (int i = 0; i < kAsked; ++i) {
    (*pipeline)->Ask(0, "more", 0, [&](const Status& status, std::string, PipelineValues) {
      EXPECT(!status.ok());
      ++answered;
    });
  }
  pipeline->reset();
  EXPECT_EQ(answered.load(), kAsked);
}

}  // namespace
}  // namespace pathways::worker
