// The body of every message type, each declared once: the same Fields() writes and reads it.
//
// Ownership: plain values owning their contents. Threads: plain values.
//
// Naming: `host` is a worker's index in the cluster, `device` a physical device's index in the cluster (hosts in
// order, each host's devices in order). Ids of functions, buffers, runs and requests are minted by the client with
// its index (Welcome) in the top 16 bits, so ids of different clients never collide; the controller refuses others.
#ifndef PTPATHWAYS_WIRE_BODIES_H_
#define PTPATHWAYS_WIRE_BODIES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/wire/archive.h"
#include "csrc/wire/message.h"

namespace pathways::wire {

enum class Role : uint8_t { kClient = 1, kWorker = 2 };

// Top 16 bits of every id name the client that minted it (0 is never a client).
inline constexpr int kClientShift = 48;
constexpr uint64_t ClientOf(uint64_t id) { return id >> kClientShift; }
inline constexpr uint32_t kMaxClients = (1u << 15) - 1;
// The lower bits of a client's first id: sessions that have the same client's number begin 2^32 ids apart.
constexpr uint64_t FirstIdOf(uint64_t session) { return (session / kMaxClients % 0xffff << 32) + 1; }

struct DeviceDescription {
  uint32_t local_ordinal = 0;
  std::string kind;
  int64_t memory_limit_bytes = 0;
  int64_t plugin_id = 0;  // what the plugin calls it; within an island of one client, different for every device
  template <typename A>
  void Fields(A& a) {
    a(local_ordinal)(kind)(memory_limit_bytes)(plugin_id);
  }
};

// First message on a connection to the controller.
struct Hello {
  static constexpr Type kType = Type::kHello;
  Role role{};
  std::string build;  // package version, for the mismatch error
  std::string name;   // "host0", or the client's script name
  uint64_t pid = 0;
  std::string machine;        // equal on processes that can share memory (transport::MachineToken)
  std::string data_endpoint;  // where peers connect for bulk data; workers only
  std::string platform;       // "cpu", "cuda", "tpu"; workers only
  std::string platform_version;
  std::string island;  // hosts of one island can take part in one collective computation
  std::vector<DeviceDescription> devices;
  int64_t staging_limit_bytes = 0;  // of the host's own memory, for spilled buffers; workers only
  double weight = 1;                // clients only: share of an island's time under the fair policy
  int32_t priority = 0;             // clients only: higher goes first under the priority policy
  uint64_t line = 0;                // random; of what is said between this peer and the controller (transport/line.h)
  std::string secret = {};          // shows on later connections that they are this peer's
  std::string process_space = {};   // pid means the same to processes that say the same (base/process.h)
  template <typename A>
  void Fields(A& a) {
    a(role)(build)(
        name)(pid)(machine)(data_endpoint)(platform)(platform_version)(island)(devices)(staging_limit_bytes)(weight)(priority)(line)(secret)(process_space);
  }
};

// HostDescription::alive. A silent host is one that the controller has not heard of for a while: it may be stopped, and
// come back.
inline constexpr uint8_t kHostLost = 0, kHostAlive = 1, kHostSilent = 2;

struct HostDescription {
  uint32_t host = 0;
  std::string name;
  std::string machine;
  std::string data_endpoint;
  std::string platform;
  std::string platform_version;
  std::string island;
  uint64_t pid = 0;
  uint8_t alive = kHostAlive;
  uint32_t first_device = 0;
  std::vector<DeviceDescription> devices;
  int64_t staging_limit_bytes = 0;
  uint64_t session = 0;  // as in its WELCOME
  template <typename A>
  void Fields(A& a) {
    a(host)(name)(
        machine)(data_endpoint)(platform)(platform_version)(island)(pid)(alive)(first_device)(devices)(staging_limit_bytes)(session);
  }
  // One computation can have devices of two hosts when these are equal. The collectives of the CPU platform are ours
  // and reach every host; those of the others are the platform's own and end at the island.
  std::string collectives_reach() const { return platform == "cpu" ? std::string() : platform + " in " + island; }
};

// What the receiver must call itself on data connections to a host (identity.h). Another one for each host.
struct IdentityAt {
  uint32_t host = 0;
  std::string identity;
  template <typename A>
  void Fields(A& a) {
    a(host)(identity);
  }
};

struct Welcome {
  static constexpr Type kType = Type::kWelcome;
  uint32_t peer = 0;  // the client's or host's index
  std::string cluster;
  uint32_t heartbeat_interval_ms = 0;
  uint32_t lease_ms = 0;  // how long a member that is silent stays one
  std::vector<HostDescription> hosts;
  uint64_t session = 0;  // of this peer with the controller; no other has it
  std::vector<IdentityAt> identities = {};
  std::string data_key = {};  // workers only: checks the identities of those who call this host
  uint64_t pid = 0;           // the controller's
  std::string process_space = {};
  template <typename A>
  void Fields(A& a) {
    a(peer)(cluster)(heartbeat_interval_ms)(lease_ms)(hosts)(session)(identities)(data_key)(pid)(process_space);
  }
};

struct Reject {
  static constexpr Type kType = Type::kReject;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(status);
  }
};

struct Topology {
  static constexpr Type kType = Type::kTopology;
  std::vector<HostDescription> hosts;
  std::vector<IdentityAt> identities = {};  // at hosts that are new since the last one
  template <typename A>
  void Fields(A& a) {
    a(hosts)(identities);
  }
};

// Its sender is alive, and so far with the receiver's messages. A member's also shows whose connection it came by.
struct Heartbeat {
  static constexpr Type kType = Type::kHeartbeat;
  uint64_t live_buffers = 0;  // of a worker
  uint64_t live_bytes = 0;
  uint64_t received = 0;      // messages of the receiver that the sender has taken
  uint8_t again = 0;          // what came behind them is to be sent again
  uint8_t hears_nothing = 0;  // of a member: the controller's messages do not arrive, and it may close the connection
  uint64_t line = 0;          // of a member, as in its HELLO
  uint64_t count = 0;         // of a member: rises with every heartbeat, so that a late one is not taken for the latest
  std::string secret = {};    // the same
  // Of a worker: for how long its engine's thread has neither taken a message nor computed.
  uint64_t engine_still_ms = 0;
  template <typename A>
  void Fields(A& a) {
    a(live_buffers)(live_bytes)(received)(again)(hears_nothing)(line)(count)(secret)(engine_still_ms);
  }
};
inline constexpr size_t kMinSecretBytes = 16, kMaxSecretBytes = 64;

struct Goodbye {
  static constexpr Type kType = Type::kGoodbye;
  std::string reason;
  template <typename A>
  void Fields(A& a) {
    a(reason);
  }
};

// Registers a computation on the hosts of `devices`. Payloads: module, compile options.
struct Register {
  static constexpr Type kType = Type::kRegister;
  uint64_t function = 0;
  std::string name;
  std::string format;  // "hlo" or "mlir"
  std::string source;  // the user's file:line, or empty
  uint32_t replicas = 1;
  uint32_t partitions = 1;
  uint8_t one_device = 0;     // compiled for one device, runs on whichever the run names
  uint8_t want_sharding = 0;  // the answer says how the results lie over the partitions
  std::vector<uint32_t> devices;
  template <typename A>
  void Fields(A& a) {
    a(function)(name)(format)(source)(replicas)(partitions)(one_device)(want_sharding)(devices);
  }
};

// A host's answer to Register.
struct Registered {
  static constexpr Type kType = Type::kRegistered;
  uint64_t function = 0;
  uint32_t host = 0;
  Status status;
  std::vector<TensorType> outputs;  // per device
  uint64_t temp_bytes = 0;
  uint64_t code_bytes = 0;
  uint64_t compile_us = 0;
  std::string output_sharding;  // an OpSharding, of a tuple if there are several results; only when it was asked for
  uint32_t code_room = 100;     // how much of what this host may take for compiled code is left, in percent
  template <typename A>
  void Fields(A& a) {
    a(function)(host)(status)(outputs)(temp_bytes)(code_bytes)(compile_us)(output_sharding)(code_room);
  }
};

struct Unregister {
  static constexpr Type kType = Type::kUnregister;
  std::vector<uint64_t> functions;
  std::vector<uint64_t> programs;
  template <typename A>
  void Fields(A& a) {
    a(functions)(programs);
  }
};

// Creates one shard of a logical buffer, and the buffer with its first shard on a host. With `inline_data` of the
// shard's size the value is complete; otherwise its bytes arrive as Data under `key`.
struct Put {
  static constexpr Type kType = Type::kPut;
  uint64_t buffer = 0;
  uint64_t key = 0;  // equal to `buffer` for shard 0
  uint32_t shard = 0;
  uint32_t shards_here = 1;  // of the buffer that come to this host, one PUT each
  uint32_t device = 0;
  TensorType type;
  std::string inline_data;
  template <typename A>
  void Fields(A& a) {
    a(buffer)(key)(shard)(shards_here)(device)(type)(inline_data);
  }
};
// Values up to this size travel inside Put and Fetched.
inline constexpr size_t kMaxInlineBytes = 4096;

// Executes a function once: one gang, one shard per device.
struct Run {
  static constexpr Type kType = Type::kRun;
  uint64_t run = 0;
  uint64_t function = 0;
  uint64_t first_output = 0;  // output k is the logical buffer first_output + k, shard i on devices[i]
  uint32_t output_count = 0;
  std::vector<uint32_t> devices;
  // Argument j of every shard: a logical buffer whose shard i lies on devices[i]; or, with the top bit set, index of
  // a row of `assembled`, which names one single-shard buffer (or one shard of a larger one) per device.
  std::vector<uint64_t> arguments;
  std::vector<uint64_t> assembled;  // pairs (buffer, shard), devices.size() pairs per row
  std::vector<uint32_t> donated;    // positions of the arguments given up by this run
  template <typename A>
  void Fields(A& a) {
    a(run)(function)(first_output)(output_count)(devices)(arguments)(assembled)(donated);
  }
};
inline constexpr uint64_t kAssembledBit = uint64_t{1} << 63;
// A worker makes a buffer for each, also for a run that fails.
inline constexpr uint32_t kMaxRunOutputs = 1u << 16;

struct RunOutcome {
  uint64_t run = 0;
  uint32_t host = 0;
  uint64_t device_us = 0;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(run)(host)(device_us)(status);
  }
};

// Completions, batched. A worker reports its part of each run. A client hears of a run once: when the last host is
// done, or at once when a part fails.
struct Done {
  static constexpr Type kType = Type::kDone;
  std::vector<RunOutcome> outcomes;
  template <typename A>
  void Fields(A& a) {
    a(outcomes);
  }
};

// Asks for the bytes of one shard (or, with metadata_only, just for its readiness).
struct Fetch {
  static constexpr Type kType = Type::kFetch;
  uint64_t request = 0;
  uint64_t buffer = 0;
  uint32_t shard = 0;
  uint32_t device = 0;
  uint8_t metadata_only = 0;
  template <typename A>
  void Fields(A& a) {
    a(request)(buffer)(shard)(device)(metadata_only);
  }
};

// Answer to Fetch: an error, the bytes inline, or (inline empty, size > 0) bytes that travel as Data under `request`.
struct Fetched {
  static constexpr Type kType = Type::kFetched;
  uint64_t request = 0;
  Status status;
  uint64_t size = 0;
  std::string inline_data;
  template <typename A>
  void Fields(A& a) {
    a(request)(status)(size)(inline_data);
  }
};

// The last reference to these logical buffers of one host is gone. Ordered after every run sent before it.
struct Free {
  static constexpr Type kType = Type::kFree;
  uint32_t host = 0;
  std::vector<uint64_t> buffers;
  template <typename A>
  void Fields(A& a) {
    a(host)(buffers);
  }
};

// Copies one shard to a new one-shard buffer on another device. The controller sends Expect to the receiver's host
// and Copy to the sender's; the bytes go from worker to worker.
struct Copy {
  static constexpr Type kType = Type::kCopy;
  uint64_t source = 0;
  uint32_t source_shard = 0;
  uint32_t source_device = 0;
  uint64_t destination = 0;
  uint32_t destination_device = 0;
  TensorType type;
  template <typename A>
  void Fields(A& a) {
    a(source)(source_shard)(source_device)(destination)(destination_device)(type);
  }
};

// A buffer whose bytes come from another host.
struct Expect {
  static constexpr Type kType = Type::kExpect;
  uint64_t buffer = 0;
  uint32_t device = 0;
  uint32_t from_host = 0;
  TensorType type;
  template <typename A>
  void Fields(A& a) {
    a(buffer)(device)(from_host)(type);
  }
};

// A put or an expected buffer that could not be made.
struct BufferFailed {
  static constexpr Type kType = Type::kBufferFailed;
  uint64_t buffer = 0;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(buffer)(status);
  }
};

// A host's part of a gang over several hosts has failed, or the gang must not go on: the other parts would wait for it
// for ever. From a worker to the controller, and from the controller to the other hosts of the run.
struct Abort {
  static constexpr Type kType = Type::kAbort;
  uint64_t run = 0;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(run)(status);
  }
};

// A device that has waited in a collective for another host for some time.
struct Stall {
  uint64_t run = 0;
  uint32_t device = 0;      // cluster-wide
  uint32_t waits_for = 0;   // host
  uint32_t collective = 0;  // number in its computation
  uint64_t age_ms = 0;
  std::string what;  // "function 'f' (train.py:12)"
  template <typename A>
  void Fields(A& a) {
    a(run)(device)(waits_for)(collective)(age_ms)(what);
  }
};

// All of a worker's devices that wait so; sent while there are any, and once when there are none any more.
struct Stalled {
  static constexpr Type kType = Type::kStalled;
  std::vector<Stall> stalls;
  template <typename A>
  void Fields(A& a) {
    a(stalls);
  }
};

struct HostLost {
  static constexpr Type kType = Type::kHostLost;
  uint32_t host = 0;
  std::string reason;
  template <typename A>
  void Fields(A& a) {
    a(host)(reason);
  }
};

// A client is gone: its functions and buffers are collected (ownership labels, paper 4.6).
struct OwnerGone {
  static constexpr Type kType = Type::kOwnerGone;
  uint32_t client = 0;
  uint64_t session = 0;  // its number may be another client's some time later
  template <typename A>
  void Fields(A& a) {
    a(client)(session);
  }
};

// A chunk of bulk bytes on a data connection: in shared memory when `segment` is set, else in payload 0; or, with an
// error, the end of the transfer.
struct Data {
  static constexpr Type kType = Type::kData;
  uint64_t key = 0;  // a buffer id (upload, copy) or a request id (fetch)
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t total = 0;
  std::string segment;
  uint64_t segment_offset = 0;
  uint64_t release = 0;  // the sender's token, returned in Release
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(key)(offset)(size)(total)(segment)(segment_offset)(release)(status);
  }
};

// The receiver is done with a chunk; with an error, it wants no more of the transfer.
struct Release {
  static constexpr Type kType = Type::kRelease;
  uint64_t key = 0;
  uint64_t token = 0;
  Status status;
  uint8_t deferred = 0;  // nobody expects it yet: the sender stops, and sends again from this chunk after a RESUME
  template <typename A>
  void Fields(A& a) {
    a(key)(token)(status)(deferred);
  }
};

// A deferred transfer is expected now; with an error, nobody wants it.
struct Resume {
  static constexpr Type kType = Type::kResume;
  uint64_t key = 0;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(key)(status);
  }
};

enum class QueryKind : uint8_t {
  kOptimizedProgram = 1,
  kCostAnalysis = 2,
  kMemoryStats = 3,
  kCompiledMemory = 4,
  kSerialized = 5,
  kStatus = 6,
  kFingerprint = 7,
  kActivity = 8,  // what a host is doing: properties of kind 1, named by the sort, ages in ms
  kTimes = 9,     // when what a program's last runs computed on a host began and ended: a Times (times_bodies.h)
};

struct Query {
  static constexpr Type kType = Type::kQuery;
  uint64_t request = 0;
  QueryKind kind{};
  uint64_t function = 0;
  uint32_t device = 0;
  template <typename A>
  void Fields(A& a) {
    a(request)(kind)(function)(device);
  }
};

struct Property {
  std::string name;
  uint8_t kind = 0;  // 0 text, 1 int64, 2 double
  std::string text;
  int64_t integer = 0;
  double real = 0;
  template <typename A>
  void Fields(A& a) {
    a(name)(kind)(text)(integer)(real);
  }
};

// Payload 0: bytes, for kinds that ask for some.
struct Reply {
  static constexpr Type kType = Type::kReply;
  uint64_t request = 0;
  Status status;
  std::string format;
  std::vector<Property> properties;
  template <typename A>
  void Fields(A& a) {
    a(request)(status)(format)(properties);
  }
};

// First message on a data connection: who is calling, and whether memory can be shared.
struct PeerHello {
  static constexpr Type kType = Type::kPeerHello;
  std::string cluster;
  std::string machine;
  // How far the sender is (dataplane::Link::Statement).
  uint64_t number = 0;
  uint64_t other = 0;
  uint64_t received = 0;
  uint64_t sent = 0;
  uint8_t anew = 0;
  template <typename A>
  void Fields(A& a) {
    a(cluster)(machine)(number)(other)(received)(sent)(anew);
  }
};

// So many messages of the receiver's link `number` have been taken, in order.
struct PeerSeen {
  static constexpr Type kType = Type::kPeerSeen;
  uint64_t number = 0;
  uint64_t received = 0;
  uint8_t lost = 0;  // more were sent: they are to be sent again
  template <typename A>
  void Fields(A& a) {
    a(number)(received)(lost);
  }
};

// A transfer has failed and its receiver cannot be told on the data connection. From its sender to the controller, and
// on to the receiving host.
struct TransferFailed {
  static constexpr Type kType = Type::kTransferFailed;
  uint32_t host = 0;
  uint64_t key = 0;
  Status status;
  template <typename A>
  void Fields(A& a) {
    a(host)(key)(status);
  }
};

// The cluster's join token is about to be another one. From the controller to each member: the token of its role, whose
// keys connections need that are made from then on.
struct Rotate {
  static constexpr Type kType = Type::kRotate;
  std::string token;
  template <typename A>
  void Fields(A& a) {
    a(token);
  }
};

// A piece of what one host sends to another in a collective. Payload 0: the bytes.
struct CollectiveChunk {
  static constexpr Type kType = Type::kCollectiveChunk;
  uint32_t source_host = 0;
  uint32_t source_device = 0;  // indices within their hosts
  uint32_t target_device = 0;
  uint64_t sequence = 0;  // the run's place in the cluster's order
  uint32_t node = 0;      // and the node's in the run's program
  uint64_t offset = 0;
  uint64_t total = 0;
  uint32_t number = 0;
  uint32_t ordinal = 0;
  uint32_t round = 0;
  template <typename A>
  void Fields(A& a) {
    a(source_host)(source_device)(target_device)(sequence)(node)(offset)(total)(number)(ordinal)(round);
  }
};

// The receiver has taken `count` more of the chunks that came from a device to a device.
struct CollectiveTaken {
  static constexpr Type kType = Type::kCollectiveTaken;
  uint32_t host = 0;  // the receiver
  uint32_t source_device = 0;
  uint32_t target_device = 0;
  uint32_t count = 0;
  template <typename A>
  void Fields(A& a) {
    a(host)(source_device)(target_device)(count);
  }
};

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_BODIES_H_
