// Shards into files and out of them, and input pipelines: what makes the bytes of buffers that were put without any.
#include "csrc/worker/files.h"

#include <filesystem>

#include "csrc/worker/input_pipelines.h"
#include "csrc/worker/test_support.h"

namespace pathways::worker {
namespace {

constexpr uint64_t kKey = (uint64_t{1} << wire::kClientShift) | 5;

// Announced without its bytes.
void Announce(TestHostWithBuffers& host, uint64_t id) {
  wire::Put put;
  put.buffer = put.key = id;
  put.device = 4;
  put.type = {DType::kU8, {3}};
  EXPECT_OK(host.buffers.Put(put));
}

TEST(WhatWasSavedIsLoaded) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  Files files(host.context, host.incoming, {});
  const std::string path =
      (std::filesystem::temp_directory_path() / ("files_test." + std::to_string(::getpid()))).string();
  EXPECT_OK(host.Put(1, "abc"));
  wire::Save save;
  save.request = 1;
  save.path = path;
  save.header = "head";
  save.file_bytes = 7;
  const wire::FileBox box{0, 4, {3}, {0}, {0}, {3}};
  save.shards = {{1, 0, {box}}};
  files.Save(save);
  const wire::Stored saved = host.messages.Await<wire::Stored>().at(0);
  EXPECT_OK(saved.status);
  EXPECT_EQ(saved.bytes, 3);

  Announce(host, kKey);
  wire::Load load;
  load.request = kKey;
  load.files = {{path, 7, 1, saved.crc32c}};
  load.shards = {{kKey, kKey, {DType::kU8, {3}}, {box}}};
  files.Load(load);
  EXPECT_OK(host.messages.Await<wire::Stored>(2).at(1).status);
  EXPECT_EQ(host.Fetch(kKey).inline_data, "abc");

  Announce(host, kKey + 1);
  load.files[0].crc32c ^= 1;
  load.shards[0].buffer = load.shards[0].key = kKey + 1;
  files.Load(load);
  EXPECT(!host.messages.Await<wire::Stored>(3).at(2).status.ok());
  EXPECT(!host.Fetch(kKey + 1).status.ok());
  EXPECT(files.Stop(std::chrono::seconds(20)));
  std::filesystem::remove(path);
}

TEST(ASaveOfWhatIsNotThereIsAnsweredAndLeavesNoFile) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  Files files(host.context, host.incoming, {});
  wire::Save save;
  save.path = "/nowhere/at/all";
  save.shards = {{9, 0, {}}};
  files.Save(save);
  EXPECT_HAS(host.messages.Await<wire::Stored>().at(0).status.message(), "buffer 9 is not on this host");
  EXPECT(files.Stop(std::chrono::seconds(20)));
}

TEST(AClosedPipelineFailsWhatItShouldHaveMade) {
  NEED_PLUGIN(client);
  TestHostWithBuffers host(client->shared_from_this());
  InputPipelines pipelines(host.context, host.incoming, {.python = "", .script = "", .refuse = true});
  wire::OpenPipeline open;
  open.pipeline = 1;
  const transport::Frame given("a pickle");
  pipelines.Open(open, &given);
  EXPECT_HAS(host.messages.Await<wire::Reply>().at(0).status.message(), "without a join token");
  Announce(host, kKey);
  wire::Feed feed;
  feed.pipeline = 1;
  feed.keys = {kKey};
  pipelines.Feed(feed);
  EXPECT_HAS(host.messages.Await<wire::Reply>(2).at(1).status.message(), "the input pipeline is closed");
  EXPECT_HAS(host.Fetch(kKey).status.message(), "the input pipeline is closed");
  pipelines.CloseAll();
}

TEST(APipelineNeedsProcessesAndWhatTheyAreGiven) {
  TestHost host;
  Incoming incoming;
  InputPipelines pipelines(host.context, incoming, {});
  wire::OpenPipeline open;
  open.workers = 0;
  pipelines.Open(open, nullptr);
  EXPECT_HAS(host.messages.Await<wire::Reply>().at(0).status.message(), "expected a new input pipeline");
}

}  // namespace
}  // namespace pathways::worker
