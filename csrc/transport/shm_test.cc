// Segments: bounds, exhaustion, what is left in /dev/shm.
#include "csrc/transport/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "csrc/transport/test_support.h"

namespace pathways::transport::testing {
namespace {

// A cluster name of this test process, so that tests running at the same time do not count each other's files.
std::string PoolName(const char* test) { return std::string("t-") + test + "-" + std::to_string(::getpid()); }

int SegmentsOf(const std::string& cluster) {
  const std::string prefix = std::string(kSegmentPrefix.substr(1)) + cluster + "-";
  int count = 0;
  DIR* directory = ::opendir("/dev/shm");
  if (directory == nullptr) return -1;
  while (const dirent* item = ::readdir(directory)) count += std::string_view(item->d_name).starts_with(prefix) ? 1 : 0;
  ::closedir(directory);
  return count;
}

SegmentPoolOptions Small(const std::string& cluster) {
  return {.cluster = cluster, .chunk_bytes = 4096, .segment_bytes = 8192, .total_bytes = 5 * 4096};
}

TEST(ChunksAreReusedBoundedAndSeenByReaders) {
  const std::string cluster = PoolName("reuse");
  {
    SegmentPool pool(Small(cluster));
    SegmentMap map(cluster);
    EXPECT_EQ(SegmentsOf(cluster), 0);
    std::vector<ShmChunk> chunks;
    for (int i = 0; i < 5; ++i) {
      ASSERT_OK_AND_ASSIGN(ShmChunk chunk, pool.TryAcquire());
      std::memset(chunk.data, 'a' + i, chunk.size);
      chunks.push_back(chunk);
    }
    EXPECT_EQ(SegmentsOf(cluster), 3);  // 2 + 2 + 1 chunks
    EXPECT_EQ(pool.bytes_allocated(), 5 * 4096);
    for (int i = 0; i < 5; ++i) {
      ASSERT_OK_AND_ASSIGN(auto view, map.Open(chunks[i].segment, chunks[i].offset, 4096));
      EXPECT(view.bytes[0] == std::byte('a' + i) && view.bytes[4095] == std::byte('a' + i));
    }
    EXPECT_EQ(map.size(), 3);
    int told = 0;
    pool.OnRelease([&] { ++told; });
    EXPECT_EQ(pool.TryAcquire().status().code(), Code::kResourceExhausted);
    pool.Release(chunks[3]);
    EXPECT_EQ(told, 1);
    pool.Release(chunks[1]);
    EXPECT_EQ(told, 1);  // nobody was waiting any more
    ASSERT_OK_AND_ASSIGN(ShmChunk warm, pool.TryAcquire());
    EXPECT(warm.data == chunks[1].data);  // the last one released
    EXPECT_EQ(pool.chunks_in_use(), 4);
  }
  EXPECT_EQ(SegmentsOf(cluster), 0);
}

TEST(BadDescriptorsAreRefused) {
  const std::string cluster = PoolName("bad");
  SegmentPool pool(Small(cluster));
  SegmentMap map(cluster);
  ASSERT_OK_AND_ASSIGN(ShmChunk chunk, pool.TryAcquire());
  const std::string name(chunk.segment);
  const auto code = [&](const std::string& segment, uint64_t offset, uint64_t size) {
    return map.Open(segment, offset, size).status().code();
  };
  EXPECT_EQ(code(name, 0, 8192), Code::kOk);
  EXPECT_EQ(code(name, 8192, 0), Code::kOk);
  EXPECT_EQ(code(name, 0, 8193), Code::kInvalidArgument);
  EXPECT_EQ(code(name, 8193, 0), Code::kInvalidArgument);
  EXPECT_EQ(code(name, UINT64_MAX, 2), Code::kInvalidArgument);
  EXPECT_EQ(code(name, 2, UINT64_MAX), Code::kInvalidArgument);
  for (const std::string& bad : std::vector<std::string>{
           "", "/", "/etc/passwd", "/../etc/passwd", name.substr(1), name + "/", "/x" + name, name + "x",
           "/ptpathways-" + cluster, "/ptpathways-" + cluster + "-1", "/ptpathways-" + cluster + "--1",
           "/ptpathways-" + cluster + "-1-", "/ptpathways-" + cluster + "/../x-1-1", "/ptpathways-other-1-1",
           name + std::string(1, '\0'), "/ptpathways-" + std::string(1000, 'c') + "-1-1",
           "/ptpathways-" + cluster + "-more-1-1"}) {
    if (code(bad, 0, 1) != Code::kInvalidArgument) EXPECT_EQ(bad, "refused");
  }
  EXPECT_EQ(code("/ptpathways-" + cluster + "-1-999999", 0, 1), Code::kNotFound);
  // An empty file, a link.
  const std::string empty = "/ptpathways-" + cluster + "-1-888888", link = "/ptpathways-" + cluster + "-1-777777";
  ::close(::open(("/dev/shm" + empty).c_str(), O_CREAT | O_RDWR, 0600));
  EXPECT_EQ(code(empty, 0, 0), Code::kInvalidArgument);
  EXPECT_EQ(::symlink(("/dev/shm" + name).c_str(), ("/dev/shm" + link).c_str()), 0);
  EXPECT_EQ(code(link, 0, 1), Code::kNotFound);
  ::unlink(("/dev/shm" + link).c_str());
  ASSERT_OK_AND_ASSIGN(int removed, CleanUp(cluster));
  EXPECT_EQ(removed, 2);  // the empty file and the pool's own
  EXPECT_EQ(SegmentsOf(cluster), 0);
}

TEST(MappingOutlivesThePool) {
  const std::string cluster = PoolName("outlive");
  SegmentMap map(cluster);
  SegmentMap::View view;
  std::string name;
  {
    SegmentPool pool(Small(cluster));
    ASSERT_OK_AND_ASSIGN(ShmChunk chunk, pool.TryAcquire());
    name = chunk.segment;
    std::memcpy(chunk.data, "still here", 10);
    ASSERT_OK_AND_ASSIGN(view, map.Open(name, chunk.offset, 10));
  }
  map.Forget(name);
  EXPECT_EQ(map.size(), 0);
  EXPECT_EQ(std::memcmp(view.bytes.data(), "still here", 10), 0);
  EXPECT_EQ(map.Open(name, 0, 1).status().code(), Code::kNotFound);
}

class Pins : public Pinner {
 public:
  bool Pin(void* data, size_t size) override {
    if (refuse) return false;
    *static_cast<char*>(data) = *static_cast<char*>(data);  // as a driver may
    sizes[data] = size;
    return true;
  }
  void Unpin(void* data) override { wrong += sizes.erase(data) == 0; }
  std::unordered_map<void*, size_t> sizes;
  int wrong = 0;
  bool refuse = false;
};

TEST(SegmentsArePinnedAsLongAsTheyAreMapped) {
  const std::string cluster = PoolName("pin");
  auto pins = std::make_shared<Pins>();
  SegmentPool pool(Small(cluster));
  SegmentMap map(cluster, pins);
  ASSERT_OK_AND_ASSIGN(const ShmChunk chunk, pool.TryAcquire());
  ASSERT_OK_AND_ASSIGN(auto view, map.Open(chunk.segment, chunk.offset, 10));
  ASSERT_OK_AND_ASSIGN(auto other, map.Open(chunk.segment, 0, 10));
  EXPECT_EQ(pins->sizes.size(), size_t{1});
  EXPECT_EQ(pins->sizes.begin()->second, size_t{8192});
  map.Forget(chunk.segment);
  other = {};
  EXPECT_EQ(pins->sizes.size(), size_t{1});  // a view is in use
  view = {};
  EXPECT(pins->sizes.empty());
  pins->refuse = true;
  ASSERT_OK_AND_ASSIGN(view, map.Open(chunk.segment, chunk.offset, 10));
  map.Forget(chunk.segment);
  view = {};
  EXPECT_EQ(pins->wrong, 0);
}

int HolderRole(const std::string& cluster) {
  SegmentPool pool(Small(cluster));
  if (!pool.TryAcquire().ok()) return 2;
  std::printf("held\n");
  std::fflush(stdout);
  ::pause();
  return 0;
}
const RoleRegistration holder_role("holder", &HolderRole);

bool WaitForSegments(const std::string& cluster, int count) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (SegmentsOf(cluster) != count) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(LeftoversOfTheDeadAreRemovedAndOnlyThose) {
  const std::string living = PoolName("living"), dead = PoolName("dead");
  SegmentPool pool(Small(living));
  ASSERT_OK(pool.TryAcquire());
  Child child("holder", dead);
  ASSERT(WaitForSegments(dead, 1));
  child.Kill();
  EXPECT_EQ(child.Wait(), -1);
  EXPECT_EQ(SegmentsOf(dead), 1);
  ASSERT_OK(CleanUpDead());
  EXPECT_EQ(SegmentsOf(dead), 0);
  EXPECT_EQ(SegmentsOf(living), 1);
  EXPECT_EQ(CleanUp("no/such").status().code(), Code::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(int others, CleanUp(living.substr(0, living.rfind('-'))));  // a prefix is another cluster
  EXPECT_EQ(others, 0);
  EXPECT_EQ(SegmentsOf(living), 1);
}

TEST(OneOwnersSegmentsAreRemovedAndNoOthers) {
  SegmentPoolOptions options = Small(PoolName("owners"));
  options.owner = 5;
  SegmentPool gone(options);
  options.owner = 6;
  SegmentPool stays(options);
  ASSERT_OK(gone.TryAcquire());
  ASSERT_OK(stays.TryAcquire());
  ASSERT_OK_AND_ASSIGN(int removed, CleanUpOwner(options.cluster, 5));
  EXPECT_EQ(removed, 1);
  EXPECT_EQ(SegmentsOf(options.cluster), 1);
  ASSERT_OK_AND_ASSIGN(int others, CleanUpOwner(PoolName("another"), 6));
  EXPECT_EQ(others, 0);
}

// A process may not write files beyond a limit: the same path as a full /dev/shm, an error and no SIGBUS.
int FullRole(const std::string& cluster) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{8192, 8192};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
  SegmentPoolOptions options = Small(cluster);
  options.segment_bytes = options.chunk_bytes = options.total_bytes = 1 << 20;
  SegmentPool pool(options);
  const Status status = pool.TryAcquire().status();
  if (status.code() != Code::kUnavailable) return 3;
  if (SegmentsOf(cluster) != 0) return 4;
  return pool.TryAcquire().status().code() == Code::kUnavailable ? 0 : 5;
}
const RoleRegistration full_role("full", &FullRole);

TEST(NoRoomForSegmentsIsAnError) {
  Child child("full", PoolName("full"));
  EXPECT_EQ(child.Wait(), 0);
  SegmentPool pool({.cluster = "bad/name"});
  EXPECT_EQ(pool.TryAcquire().status().code(), Code::kUnavailable);
}

TEST(MachineTokenIsStable) {
  EXPECT(!MachineToken().empty());
  EXPECT_EQ(MachineToken(), MachineToken());
}

}  // namespace
}  // namespace pathways::transport::testing
