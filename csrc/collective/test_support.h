// For this room's tests: an island of several Communicators in one process, with a thread for each device.
#ifndef PTPATHWAYS_COLLECTIVE_TEST_SUPPORT_H_
#define PTPATHWAYS_COLLECTIVE_TEST_SUPPORT_H_

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/collective/communicator.h"
#include "csrc/dataplane/data_plane.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::collective {

class NoTransfers : public dataplane::DataSink {
 public:
  void OnBytes(std::string_view, uint64_t, uint64_t, uint64_t, std::span<const std::byte>,
               transport::BulkLease) override {}
  void OnTransferFailed(std::string_view, uint64_t, const Status&) override {}
  void OnSendFailed(const std::string&, uint64_t, const Status&) override {}
};

enum class Path { kMemory, kMessages };

class Island {
 public:
  explicit Island(uint32_t hosts, Path path = Path::kMemory, std::chrono::milliseconds limit = std::chrono::seconds(60),
                  LaneShape lane = {}) {
    static std::atomic<int> islands{0};
    cluster_ = "collective-test-" + std::to_string(::getpid()) + "-" + std::to_string(islands.fetch_add(1));
    for (uint32_t host = 0; host < hosts; ++host) {
      std::unique_ptr<dataplane::DataPlane> data;
      if (path == Path::kMessages) {
        dataplane::DataPlaneOptions options;
        options.membership = {cluster_, "w/" + NameOf(host), "", 0};
        options.bind_endpoint = "tcp://127.0.0.1:*";
        options.curve.insecure = true;
        EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") ? std::getenv("PW_LIBZMQ") : ""));
        auto started = dataplane::DataPlane::Start(options, &sink_);
        if (!started.ok()) {
          pathways::testing::Fail(__FILE__, __LINE__, started.status().ToString());
        } else {
          data = *std::move(started);
        }
      }
      CommunicatorOptions options;
      options.cluster = cluster_;
      options.host = host;
      options.limit = limit;
      options.lane = lane;
      hosts_.push_back(std::make_unique<Communicator>(options, data.get()));
      data_.push_back(std::move(data));
    }
    for (auto& communicator : hosts_) {
      for (uint32_t host = 0; host < hosts; ++host) {
        HostInfo info{host, NameOf(host), path == Path::kMemory};
        if (data_[host]) info.data_endpoint = data_[host]->endpoint();
        communicator->SetHost(info);
      }
    }
  }
  ~Island() {
    for (auto& data : data_) {
      if (data) data->Stop();
    }
    hosts_.clear();
  }

  static std::string NameOf(uint32_t host) { return "host" + std::to_string(host); }
  const std::string& cluster() const { return cluster_; }
  size_t size() const { return hosts_.size(); }
  Communicator& host(uint32_t host) { return *hosts_[host]; }

  // The gang of `shards` that is a node of run `sequence`.
  static std::shared_ptr<const Gang> MakeGang(std::vector<Place> shards, uint64_t sequence, uint32_t node = 0) {
    auto gang = std::make_shared<Gang>();
    gang->run = sequence;
    gang->launch = {sequence, node};
    gang->what = "gang " + std::to_string(sequence);
    gang->shards = std::make_shared<const std::vector<Place>>(std::move(shards));
    return gang;
  }
  // Shard i on host i / devices.
  static std::vector<Place> Grid(uint32_t hosts, uint32_t devices) {
    std::vector<Place> places;
    for (uint32_t i = 0; i < hosts * devices; ++i) places.push_back({i / devices, i % devices});
    return places;
  }

  using Body = std::function<Status(uint32_t shard, Communicator& communicator, int device)>;
  // Runs `body` for each shard of the gang on a thread of its own, between Begin and End; gives their statuses.
  std::vector<Status> Run(const std::shared_ptr<const Gang>& gang, const Body& body) {
    std::vector<Status> statuses(gang->shards->size());
    std::vector<std::thread> threads;
    for (uint32_t shard = 0; shard < statuses.size(); ++shard) {
      threads.emplace_back([&, shard] { statuses[shard] = RunShard(gang, shard, body); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  Status RunShard(const std::shared_ptr<const Gang>& gang, uint32_t shard, const Body& body) {
    const Place place = (*gang->shards)[shard];
    Communicator& communicator = *hosts_[place.host];
    communicator.Begin(static_cast<int>(place.device), gang, shard);
    Status status = body(shard, communicator, static_cast<int>(place.device));
    communicator.End(static_cast<int>(place.device));
    return status;
  }

 private:
  std::string cluster_;
  NoTransfers sink_;
  std::vector<std::unique_ptr<dataplane::DataPlane>> data_;
  std::vector<std::unique_ptr<Communicator>> hosts_;
};

}  // namespace pathways::collective

#endif  // PTPATHWAYS_COLLECTIVE_TEST_SUPPORT_H_
