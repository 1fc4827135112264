// Session: a client's view of the cluster. Mints handles, submits work, and never waits to do so.
//
// A session talks to a controller through a Link (in the same process, or ZeroMQ) and to workers' data endpoints for
// bulk bytes. Everything above it (the PJRT plugin, the Python bindings) is built from this class alone.
//
// Ownership: created by Connect, shared by the plugin's client and Python; handles keep it alive.
// Threads:   every public method may be called from any thread; none takes the GIL. Events are set on the session's
//            receive thread or, with an embedded controller, on whichever thread delivered the message.
// Locks:     Impl's own (session.cc); never held while a callback runs.
#ifndef PTPATHWAYS_CLIENT_SESSION_H_
#define PTPATHWAYS_CLIENT_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/transport/keys.h"
#include "csrc/wire/file_bodies.h"
#include "csrc/wire/pipeline_bodies.h"
#include "csrc/wire/plan_bodies.h"

namespace pathways::client {

class Session;

// One handle and one reference count per logical buffer, whatever its number of shards. Dropping the last reference
// frees the buffer on its workers, batched with other frees and ordered after every run submitted before.
class LogicalBuffer {
 public:
  LogicalBuffer(std::shared_ptr<Session> session, uint64_t id, std::vector<uint32_t> devices, TensorType shard_type,
                std::shared_ptr<Event> ready);
  ~LogicalBuffer();
  LogicalBuffer(const LogicalBuffer&) = delete;
  LogicalBuffer& operator=(const LogicalBuffer&) = delete;

  uint64_t id() const { return id_; }
  const std::vector<uint32_t>& devices() const { return devices_; }  // shard i lies on devices()[i]
  const TensorType& shard_type() const { return shard_type_; }
  // The event of the run that produces it; nullptr for uploads, whose readiness is asked for by Session::Ready.
  const std::shared_ptr<Event>& ready() const { return ready_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  // Whether a run has been given its memory: nothing can be done with it any more.
  bool given_up() const { return given_up_.load(std::memory_order_relaxed); }
  void GiveUp() { given_up_.store(true, std::memory_order_relaxed); }
  // OUT_OF_RANGE: it was given up.
  Status CheckHeld() const;

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  const std::vector<uint32_t> devices_;
  const TensorType shard_type_;
  const std::shared_ptr<Event> ready_;
  std::atomic<bool> given_up_{false};
};

// One shard of a logical buffer: what a PJRT buffer stands for.
struct Shard {
  std::shared_ptr<LogicalBuffer> buffer;
  uint32_t index = 0;

  uint32_t device() const { return buffer->devices()[index]; }
  const TensorType& type() const { return buffer->shard_type(); }
};

struct FunctionSpec {
  std::string name;
  std::string format;  // "hlo" or "mlir"
  std::string module;
  std::string options;  // CompileOptionsProto bytes, already rewritten for one_device or `devices`
  std::string source;   // the user's file:line, or empty
  uint32_t replicas = 1;
  uint32_t partitions = 1;
  // Compiled for one device and run on any device of the cluster, one at a time. Otherwise every run takes exactly
  // `devices` (replica-major), which must lie in one island.
  bool one_device = true;
  std::vector<uint32_t> devices;
  // Per-device output types when the caller could read them from the module; else the session waits for the compile.
  std::vector<TensorType> outputs;
  bool outputs_known = false;
  // Whether the hosts are to say how the results lie over the partitions; goes with outputs_known == false.
  bool wants_sharding = false;
  std::string output_sharding;  // what they said: an OpSharding, of a tuple if there are several results
};

// A registered function. Dropping the last reference unregisters it.
class Function {
 public:
  Function(std::shared_ptr<Session> session, uint64_t id, FunctionSpec spec);
  ~Function();
  uint64_t id() const { return id_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const FunctionSpec& spec() const { return spec_; }
  // Resolves when every host it was registered on has compiled it, with the first error otherwise.
  const std::shared_ptr<Event>& compiled() const { return compiled_; }

 private:
  friend class Session;
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  FunctionSpec spec_;
  const std::shared_ptr<const std::string> description_;  // "function 'f' (train.py:12)"
  std::mutex mutex_;             // held while registering on a further host, so that no run overtakes it
  std::vector<uint32_t> hosts_;  // guarded by mutex_: where it is registered
  const std::shared_ptr<Event> compiled_ = Event::Make();
};

struct RunArguments {
  std::vector<uint32_t> devices;
  // arguments[shard][position]; or, by position, buffers that lie on `devices` with a shard on each
  std::vector<std::vector<Shard>> arguments;
  std::vector<std::shared_ptr<LogicalBuffer>> whole;
  std::vector<uint32_t> donated;  // positions given up
};

struct RunResult {
  std::vector<std::shared_ptr<LogicalBuffer>> outputs;  // shard i of each on devices[i]
  std::shared_ptr<Event> done;                          // all shards finished, or the root cause of failure
};

// An argument or result of a program: shards of one type, shard i on devices[i].
struct Port {
  TensorType shard_type;
  std::vector<uint32_t> devices;
};

struct ProgramSpec {
  std::string name;
  std::string source;                     // the user's file:line, or empty
  std::vector<wire::RegisterPlan> plans;  // one per host; ids, name and source are filled in when it is registered
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::vector<std::shared_ptr<Function>> functions;  // what the plans name; kept as long as the program
};

// A registered program (paper 4.2). Dropping the last reference unregisters it.
class Program {
 public:
  Program(std::shared_ptr<Session> session, uint64_t id, ProgramSpec spec);
  ~Program();
  uint64_t id() const { return id_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const ProgramSpec& spec() const { return spec_; }
  // Resolves when every host has its plan and the functions in it compiled, with the first error otherwise.
  const std::shared_ptr<Event>& ready() const { return ready_; }

 private:
  friend class Session;
  const std::shared_ptr<Session> session_;
  const uint64_t id_;
  ProgramSpec spec_;  // without its plans once registered
  std::shared_ptr<const std::vector<uint32_t>> hosts_;
  uint32_t channels_ = 0;                                 // data keys that a run takes
  const std::shared_ptr<const std::string> description_;  // "program 'f' (train.py:12)"
  const std::shared_ptr<Event> ready_ = Event::Make();
};

// A whole logical buffer, or single shards of others that together make one.
struct ProgramArgument {
  std::shared_ptr<LogicalBuffer> buffer;
  std::vector<Shard> shards;  // used when `buffer` is null
};

// A run on what the program's last such run left (wire::RunInPlace).
struct InPlaceArguments {
  uint64_t previous = 0;  // InPlaceResult::run of the last one; 0: this is the first, and fills every place
  std::vector<uint32_t> argument_places, result_places;  // only in the first
  struct Change {
    uint32_t place = 0;
    size_t position = 0;  // of the argument that is read there; not looked at when `before` is empty
    std::optional<ProgramArgument> before;
    bool written = false;
  };
  std::vector<Change> changes;
  struct Argument {
    size_t position = 0;
    ProgramArgument value;
  };
  std::vector<Argument> arguments;  // without a place, by position
  std::vector<uint32_t> results;    // positions of those without a place
  std::vector<uint32_t> donated;    // positions, of arguments named above
};

struct InPlaceResult {
  uint64_t run = 0;
  std::vector<uint64_t> placed;                         // for each change what is there now: an id without a handle
  std::vector<std::shared_ptr<LogicalBuffer>> outputs;  // those without a place
  std::shared_ptr<Event> done;
};

struct SliceRequest {
  uint32_t device_count = 1;
  std::string island;
  std::string platform;
  int64_t min_memory_bytes = 0;
  uint32_t hosts = 0;             // 0: as few as it takes
  std::vector<uint32_t> among{};  // only devices of these hosts; empty: of any
};
struct Slice {
  uint64_t id = 0;
  std::vector<uint32_t> devices;
};

struct WaitStats {
  uint64_t waits = 0;
  double seconds = 0;
};

struct TransferStats {
  uint64_t bytes_uploaded = 0;  // client to workers
  uint64_t bytes_fetched = 0;   // workers to client
  uint64_t runs = 0;
  uint64_t copies = 0;  // worker to worker, none of whose bytes the client sees
};

// What a host does with files, under way.
struct FileOperation {
  struct Outcome {
    uint64_t bytes = 0;
    uint64_t elapsed_us = 0;
    uint32_t crc32c = 0;  // of a whole file that was made
  };
  std::shared_ptr<Event> done = Event::Make();
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();  // written before `done` is set
};

struct SavedShard {
  Shard shard;
  std::vector<wire::FileBox> boxes;
};

using Payload = std::shared_ptr<const std::string>;

// How messages reach the controller and come back. Send never blocks and may be called from any thread. The sink is
// called on any thread, and not after Close has returned.
class Link {
 public:
  using Sink = std::function<void(std::string head, std::vector<Payload> payloads)>;
  virtual ~Link() = default;
  // The first message.
  virtual Status Join(wire::Hello hello) { return Send(wire::Encode(hello), {}); }
  virtual Status Send(std::string head, std::vector<Payload> payloads) = 0;
  // The next connection needs these keys, or still those of this one.
  virtual void Rotate(const transport::CurveOptions& /*curve*/) {}
  // Says that this client is alive, where that is not plain.
  virtual void Beat() {}
  virtual void Close() = 0;
};
// Opens a link; `lost` is called when the controller's end closes.
using LinkFactory = std::function<Result<std::unique_ptr<Link>>(Link::Sink sink, std::function<void(Status)> lost)>;

// A link to a controller in another process, over ZeroMQ (transport/control_line.h).
Result<std::unique_ptr<Link>> OpenZmqLink(const std::string& endpoint, const transport::CurveOptions& curve,
                                          Link::Sink sink, std::function<void(Status)> lost);

struct SessionOptions {
  std::string name = "client";
  std::string build;       // package version
  std::string controller;  // for messages: where the link leads
  LinkFactory link;
  transport::ClusterKeys keys;  // for bulk data to and from hosts
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds transfer_timeout{60'000};  // of a transfer to a host that is silent
  double weight = 1;                                   // share of an island's time under the fair policy
  int32_t priority = 0;                                // class under the priority policy; higher goes first
  // Runs in flight before Run blocks, so that a tight loop cannot exhaust memory.
  uint32_t window_runs = 256;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Waits for the controller's answer. `still_wanted` is asked every now and then meanwhile; an error gives up.
  static Result<std::shared_ptr<Session>> Connect(const SessionOptions& options,
                                                  const std::function<Status()>& still_wanted = {});
  ~Session();

  const std::string& cluster() const;
  uint32_t client_index() const;
  // A snapshot; hosts never move, new ones are appended, lost ones have alive = 0.
  std::vector<wire::HostDescription> hosts() const;
  uint32_t device_count() const;

  // --- functions
  // Returns at once when spec.outputs_known; otherwise waits for the compile, and then spec().outputs is filled.
  Result<std::shared_ptr<Function>> Register(FunctionSpec spec);
  // How much of what a host may take for compiled code is left, in percent: the least that compiles since the last call
  // have shown; 100 after none.
  uint32_t TakeCodeRoom();

  // --- buffers
  // Copies `data` (dense row-major, type.ByteSize() bytes) before returning; never waits for the worker.
  Result<Shard> Put(uint32_t device, const TensorType& type, const void* data);
  // One logical buffer of many shards: shard i is the dense value at data[i], on devices[i].
  Result<std::shared_ptr<LogicalBuffer>> PutSharded(const std::vector<uint32_t>& devices, const TensorType& shard_type,
                                                    std::span<const void* const> data);
  // A buffer whose bytes come later, in any order of offsets, through Fill; or never, through Fail.
  Result<Shard> Declare(uint32_t device, const TensorType& type);
  Status Fill(const Shard& shard, uint64_t offset, const void* data, uint64_t size, bool last);
  Status Fail(const Shard& shard, const Status& status);
  // A logical buffer whose bytes its hosts get by themselves: from an input pipeline, or by a Load. The transfer of
  // shard i has the key id + i.
  Result<std::shared_ptr<LogicalBuffer>> Announce(const std::vector<uint32_t>& devices, const TensorType& shard_type);
  // Worker to worker; the bytes pass neither client nor controller.
  Result<Shard> Copy(const Shard& source, uint32_t device);
  // Writes the shard's bytes (dense row-major) to `destination`, which must live until the event is set.
  // `request`, if given, is filled before the event can be set, and names the fetch for GiveUpFetch; 0: it is over.
  std::shared_ptr<Event> Fetch(const Shard& shard, void* destination, uint64_t size, uint64_t* request = nullptr);
  // Sets the fetch's event to `status` unless it is complete; once it is set, nothing writes to its destination.
  void GiveUpFetch(uint64_t request, const Status& status);
  // Set when the shard's value exists on its device, with the root cause when it never will.
  std::shared_ptr<Event> Ready(const Shard& shard);

  // --- files (session_files.cc); the hosts read and write them, and no byte of a tensor passes here
  // Has a host write boxes of shards that lie there into one file. The values are those of now, whatever is submitted
  // later. `save`: request and shards are filled in.
  FileOperation Save(wire::Save save, std::span<const SavedShard> shards);
  // Has a host read announced shards out of files; without shards, only look whether it sees the files.
  FileOperation Load(wire::Load load);

  // --- runs
  // Mints the outputs and submits. Blocks only while window_runs runs are in flight.
  Result<RunResult> Run(const std::shared_ptr<Function>& function, const RunArguments& arguments);

  // --- programs (session_programs.cc)
  // Returns at once; runs wait at the controller until every host is ready.
  Result<std::shared_ptr<Program>> RegisterProgram(ProgramSpec spec);
  // Mints the outputs and submits one message, whatever the number of nodes and hosts. `donated`: positions given up.
  Result<RunResult> RunProgram(const std::shared_ptr<Program>& program, std::span<const ProgramArgument> arguments,
                               std::span<const uint32_t> donated = {});

  // The same, on values that stay where they are from run to run. What lies in a written place has no handle: whoever
  // wants one makes it of the place's id, and says so in the next run. Does not block; call AwaitWindow before.
  Result<InPlaceResult> RunInPlace(const std::shared_ptr<Program>& program, const InPlaceArguments& arguments);
  // Blocks while window_runs runs are in flight, unless a Ctrl-C comes.
  void AwaitWindow();

  // --- slices (paper 4.1)
  Result<Slice> RequestSlice(const SliceRequest& request, std::chrono::milliseconds timeout);
  void ReleaseSlice(uint64_t slice) noexcept;

  // --- asking
  struct QueryAnswer {
    std::string format;
    std::vector<wire::Property> properties;
    std::string payload;
  };
  Result<QueryAnswer> Ask(wire::QueryKind kind, uint64_t function, uint32_t device, std::chrono::milliseconds timeout);
  // The controller's view of the cluster, as JSON.
  Result<std::string> ClusterStatus(std::chrono::milliseconds timeout);
  // The same about a function, which is registered on the device's host first if it is not yet there.
  Result<QueryAnswer> Ask(wire::QueryKind kind, const std::shared_ptr<Function>& function, uint32_t device,
                          std::chrono::milliseconds timeout);

  // --- input pipelines (session_pipelines.cc)
  // A question that a host answers later.
  struct Question {
    std::shared_ptr<Event> done;
    std::shared_ptr<QueryAnswer> answer;  // filled when `done` is OK
  };
  uint64_t MintPipeline();
  // Starts a process of pipeline `open.pipeline` on host `open.host`; the answer's payload is what it says of itself.
  Result<Question> OpenPipeline(wire::OpenPipeline open, std::string given);
  // Done when the bytes have been handed to the buffers under `feed.keys`, or failed.
  Result<Question> Feed(wire::Feed feed);
  void ClosePipeline(uint64_t pipeline, uint32_t host) noexcept;

  // Wait with the time accounted as "the client waited". CANCELLED when a Ctrl-C came meanwhile (base/interrupt.h).
  Status Wait(const std::shared_ptr<Event>& event);
  // Waits for a compilation. Ctrl-C during it is said and waits, too, since callers of the C API lose the values of
  // what they compile when it fails; a second one gives it up. `what`: for the message.
  // `account`: whether the thread that waits is the user's, so that it counts as the client waiting.
  Status WaitForCompile(const std::shared_ptr<Event>& event, const std::string& what, bool account = true);
  // The same for a wait that happened elsewhere.
  void AccountWait(std::chrono::nanoseconds waited);
  WaitStats wait_stats() const;
  TransferStats transfer_stats() const;

  // Names of those that the controller has heard nothing of for a while.
  std::vector<std::string> SilentHosts() const;
  // To which hosts this client is sending just now, and how many values.
  std::vector<std::pair<std::string, uint64_t>> Sends() const;
  // What has been sent and not been answered, the oldest first.
  struct PendingItem {
    const char* sort;             // "run", "compile", "prepare" (a program), "fetch"
    std::string what;             // "function 'f' (train.py:12)"
    std::vector<uint32_t> hosts;  // that take part, or that have not answered
    int64_t since_ms;             // NowMs()
  };
  std::vector<PendingItem> Pending() const;

  // Waits until everything submitted so far has completed.
  Status Drain(std::chrono::milliseconds timeout);

  // Says goodbye, fails what is pending with `reason`, stops threads. Idempotent.
  void Close(const std::string& reason);
  bool closed() const;

  // The process's current session, which the PJRT plugin's Client_Create attaches to.
  static void SetCurrent(std::shared_ptr<Session> session);
  static std::shared_ptr<Session> Current();

 private:
  friend class LogicalBuffer;
  friend class Function;
  friend class Program;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  void FreeBuffer(const LogicalBuffer& buffer) noexcept;
  void UnregisterFunction(uint64_t id) noexcept;
  void UnregisterProgram(uint64_t id) noexcept;
  // Registers a one-device function on the host of `device` unless that was done before.
  Status EnsureRegistered(Function& function, uint32_t device);
  Status RegisterFunctionsOf(const ProgramSpec& spec);
  // The argument as a run names it; single shards are listed in `assembled`.
  Result<uint64_t> ArgumentId(const Program& program, size_t position, const ProgramArgument& argument,
                              std::vector<uint64_t>& assembled) const;
  // Whether a program can be run at all now.
  Status CheckReach(const Program& program) const;

  const std::unique_ptr<Impl> impl_;
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_SESSION_H_
