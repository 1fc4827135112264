// Bodies of programs (plans and their runs), slices, and memory that is taken back for a while.
//
// Ownership: plain values owning their contents. Threads: plain values.
//
// A program is lowered once into one WorkerPlan per host: a flat list of steps over slots. A slot is one logical
// buffer's part on that host. A run then costs one RunProgram message per host, whatever the number of nodes.
#ifndef PTPATHWAYS_WIRE_PLAN_BODIES_H_
#define PTPATHWAYS_WIRE_PLAN_BODIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/wire/bodies.h"

namespace pathways::wire {

// A part of a tensor, in elements. No dimensions listed: all of it.
struct Box {
  std::vector<int64_t> start;
  std::vector<int64_t> size;
  bool whole() const { return start.empty(); }
  template <typename A>
  void Fields(A& a) {
    a(start)(size);
  }
};

enum class StepKind : uint8_t {
  // Enqueues `function` on the devices of its result slots. arguments, results: slots by position; donated: positions.
  kExecute = 1,
  // Hands `box` of shard `shard` of slot arguments[0] to `host` (which may be this one) under `channel`, when it
  // exists.
  kSend = 2,
  // Makes shard `shard` of slot results[0] out of `pieces` that arrive; the buffer exists before its bytes do.
  kReceive = 3,
  // Shard `shard` of slot results[0] is a copy of shard `source_shard` of slot arguments[0], both on this host.
  kCopy = 4,
  // The slots in arguments are not used any more.
  kFree = 5,
};

// A piece of a shard that is received.
struct PlanPiece {
  uint32_t channel = 0;
  uint32_t host = 0;  // the sender
  Box box;            // in the shard that is made
  template <typename A>
  void Fields(A& a) {
    a(channel)(host)(box);
  }
};

// One flat struct for every kind; the fields a kind does not name are empty. Shards are named by their position in the
// slot (0 is the slot's first shard on this host), not by their index in the logical buffer.
struct PlanStep {
  StepKind kind{};
  uint32_t node = 0;  // index into RegisterPlan::nodes, for messages and traces
  // Of an execute: its place among the nodes of the whole program, the same in the plans of all hosts. In a plan it
  // rises from each gang over several hosts to the next, so that hosts agree on the order of those that they share.
  uint32_t gang = 0;
  uint64_t function = 0;
  std::vector<uint32_t> arguments;
  std::vector<uint32_t> results;
  std::vector<uint32_t> donated;
  uint32_t shard = 0;
  uint32_t source_shard = 0;
  uint32_t channel = 0;
  uint32_t host = 0;
  Box box;
  std::vector<PlanPiece> pieces;
  template <typename A>
  void Fields(A& a) {
    a(kind)(node)(gang)(function)(arguments)(results)(donated)(shard)(source_shard)(channel)(host)(box)(pieces);
  }
};

// What one host holds of a logical buffer.
struct PlanSlot {
  TensorType type;                // of one shard
  std::vector<uint32_t> shards;   // indices in the logical buffer
  std::vector<uint32_t> devices;  // cluster-wide, parallel to shards
  template <typename A>
  void Fields(A& a) {
    a(type)(shards)(devices);
  }
};

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// An argument or result of the program, as one host sees it.
struct PlanPort {
  uint32_t slot = kNoSlot;   // kNoSlot: none of it is on this host
  uint32_t shard_count = 1;  // of the whole logical buffer
  template <typename A>
  void Fields(A& a) {
    a(slot)(shard_count);
  }
};

// Registers one host's plan of a program. The client sends one to every host that takes part; the program can run
// when all have answered PlanReady, which each does once the functions it names are compiled.
struct RegisterPlan {
  static constexpr Type kType = Type::kRegisterPlan;
  uint64_t program = 0;
  uint32_t host = 0;
  std::string name;
  std::string source;  // the user's file:line, or empty
  uint32_t channels = 0;
  std::vector<std::string> nodes;  // "b (fig2.py:12)"
  std::vector<PlanSlot> slots;
  std::vector<PlanPort> inputs;
  std::vector<PlanPort> outputs;
  std::vector<PlanStep> steps;
  template <typename A>
  void Fields(A& a) {
    a(program)(host)(name)(source)(channels)(nodes)(slots)(inputs)(outputs)(steps);
  }
};

// Per local device: bytes a run needs at its peak beyond its arguments, and bytes its results keep.
struct PlanReady {
  static constexpr Type kType = Type::kPlanReady;
  uint64_t program = 0;
  uint32_t host = 0;
  Status status;
  std::vector<int64_t> peak_bytes;
  std::vector<int64_t> result_bytes;
  template <typename A>
  void Fields(A& a) {
    a(program)(host)(status)(peak_bytes)(result_bytes);
  }
};

// Runs a program once. The same bytes go to every host that takes part, but for the sequence number.
struct RunProgram {
  static constexpr Type kType = Type::kRunProgram;
  uint64_t run = 0;
  uint64_t program = 0;
  uint64_t first_output = 0;  // output k is the logical buffer first_output + k
  uint32_t output_count = 0;
  uint64_t first_key = 0;  // bytes of channel c travel as Data under first_key + c
  // As in Run: a logical buffer, or with the top bit set the position in `assembled` of the first of the input's
  // shard_count pairs (buffer, shard).
  std::vector<uint64_t> arguments;
  std::vector<uint64_t> assembled;
  std::vector<uint32_t> donated;  // positions of the arguments given up by this run
  template <typename A>
  void Fields(A& a) {
    a(run)(program)(first_output)(output_count)(first_key)(arguments)(assembled)(donated);
  }
};

inline constexpr uint32_t kNoPlace = UINT32_MAX;

// Runs a program on what its last run left: a RunProgram that names only what differs from the program's last run in
// place. A *place* holds one logical buffer from run to run. An argument may be read from a place and a result put
// into one; both at once is what a training step does with its state. Where nothing else was said the result takes the
// place's buffer id, and what it replaces is given up: no id is minted, and nothing is freed.
struct RunInPlace {
  static constexpr Type kType = Type::kRunInPlace;
  uint64_t run = 0;
  uint64_t program = 0;
  uint64_t first_key = 0;
  // The program's last run in place, which this one continues. 0: this is the first; the two lists below say for every
  // argument and every result its place or kNoPlace, and all places are empty until this message fills them.
  uint64_t previous = 0;
  std::vector<uint32_t> argument_places;
  std::vector<uint32_t> result_places;
  // Places that hold something else than before. `before`: what this run reads there, as in Run::arguments; 0 for a
  // place that is only written. `after`: the buffer that is there from now on. In a place that is written it is a new
  // id, of the result; in one that is only read it is `before`.
  std::vector<uint32_t> places;
  std::vector<uint64_t> before;
  std::vector<uint64_t> after;
  // Arguments without a place, in order, and the id of the first result without a place, of which there are so many.
  std::vector<uint64_t> arguments;
  uint64_t first_output = 0;
  uint32_t output_count = 0;
  std::vector<uint64_t> assembled;
  // Positions of arguments given up by this run, among those that it names.
  std::vector<uint32_t> donated;
  template <typename A>
  void Fields(A& a) {
    a(run)(program)(first_key)(previous)(argument_places)(result_places)(places)(before)(after)(arguments);
    a(first_output)(output_count)(assembled)(donated);
  }
};

// Asks the resource manager for `device_count` devices of one island, or of CPU hosts that are named.
struct RequestSlice {
  static constexpr Type kType = Type::kRequestSlice;
  uint64_t request = 0;
  uint32_t device_count = 0;
  std::string island;             // empty: any
  std::string platform;           // empty: any
  int64_t min_memory_bytes = 0;   // per device
  uint32_t hosts = 0;             // spread evenly over so many hosts; 0: as few as it takes
  std::vector<uint32_t> among{};  // only devices of these hosts; empty: of any
  template <typename A>
  void Fields(A& a) {
    a(request)(device_count)(island)(platform)(min_memory_bytes)(hosts)(among);
  }
};

struct SliceGranted {
  static constexpr Type kType = Type::kSliceGranted;
  uint64_t request = 0;
  Status status;
  uint64_t slice = 0;
  std::vector<uint32_t> devices;  // cluster-wide, host by host
  template <typename A>
  void Fields(A& a) {
    a(request)(status)(slice)(devices);
  }
};

struct ReleaseSlice {
  static constexpr Type kType = Type::kReleaseSlice;
  std::vector<uint64_t> slices;
  template <typename A>
  void Fields(A& a) {
    a(slices);
  }
};

// The controller takes buffers out of device memory into the host's, to make room for others (paper 4.6: staging
// memory). The worker answers with the same message once their bytes have moved, or they are gone.
struct Spill {
  static constexpr Type kType = Type::kSpill;
  std::vector<uint64_t> buffers;
  template <typename A>
  void Fields(A& a) {
    a(buffers);
  }
};

// Puts spilled buffers back on their devices; ordered before whatever uses them.
struct Restore {
  static constexpr Type kType = Type::kRestore;
  std::vector<uint64_t> buffers;
  template <typename A>
  void Fields(A& a) {
    a(buffers);
  }
};

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_PLAN_BODIES_H_
