// Message: what travels between client, controller and worker, before it has meaning.
//
// A message is one ZeroMQ multipart message: a head frame (fixed 24-byte header, then the body of its type) and
// zero or more payload frames of bulk bytes. docs/protocol.md is the specification.
//
// Ownership: a message owns its bytes. Threads: plain value.
#ifndef PTPATHWAYS_WIRE_MESSAGE_H_
#define PTPATHWAYS_WIRE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace pathways::wire {

inline constexpr uint32_t kMagic = 0x31595750;  // "PWY1" in memory order
// Raised when a body's layout changes. Peers of different versions refuse each other in the handshake (Hello).
inline constexpr uint16_t kProtocolVersion = 13;
inline constexpr size_t kHeaderBytes = 24;
// Bodies are small by design: bulk bytes go in payload frames or shared memory.
inline constexpr size_t kMaxBodyBytes = 16u << 20;
// Frames behind the head.
inline constexpr size_t kMaxPayloads = 4;

enum class Type : uint16_t {
  kHello = 1,
  kWelcome = 2,
  kReject = 3,
  kTopology = 4,
  kHeartbeat = 5,
  kGoodbye = 6,
  kRegister = 7,
  kRegistered = 8,
  kUnregister = 9,
  kPut = 10,
  kRun = 11,
  kDone = 12,
  kFetch = 13,
  kFetched = 14,
  kFree = 15,
  kCopy = 16,
  kExpect = 17,
  kBufferFailed = 18,
  kHostLost = 19,
  kData = 20,
  kRelease = 21,
  kQuery = 22,
  kReply = 23,
  kOwnerGone = 24,
  kPeerHello = 25,
  kRegisterPlan = 26,
  kPlanReady = 27,
  kRunProgram = 28,
  kRequestSlice = 29,
  kSliceGranted = 30,
  kReleaseSlice = 31,
  kSpill = 32,
  kRestore = 33,
  kAbort = 34,
  kStalled = 35,
  kCollectiveChunk = 37,
  kCollectiveTaken = 38,
  kIslandJoin = 39,
  kKeyValue = 40,
  kIslandAnswer = 41,
  kSave = 42,
  kLoad = 43,
  kStored = 44,
  kOpenPipeline = 45,
  kFeed = 46,
  kClosePipeline = 47,
  kRunInPlace = 49,
  kPeerSeen = 50,
  kTransferFailed = 51,
  kRotate = 52,
  kResume = 53,
};

// The name of a type for logs and errors; "UNKNOWN" for numbers outside the enum.
std::string_view TypeName(Type type);

// Whether a message of this type takes devices for a while and has a place in its islands' order.
constexpr bool IsRun(Type type) { return type == Type::kRun || type == Type::kRunProgram || type == Type::kRunInPlace; }

struct Header {
  Type type{};
  // Of a run from the controller: the gang's place in the cluster's order. Of a worker's answer that the controller
  // passes on to a client: the host that answered, plus one. On data connections: the message's number in its sender's
  // link.
  uint64_t sequence = 0;
  uint32_t body_bytes = 0;
  // Of a message on a member's line with the controller (transport/line.h): LineNumber. 0: of none.
  uint32_t number = 0;
};

// How the header names a message of a line: 31 bits of its number, and one that tells it from a message of no line.
inline constexpr uint32_t kOfALine = uint32_t{1} << 31;
constexpr uint32_t LineNumber(uint64_t number) { return kOfALine | static_cast<uint32_t>(number & (kOfALine - 1)); }
// The number that is meant, which is less than 2^30 from `near`.
constexpr uint64_t NumberOf(uint32_t line_number, uint64_t near) {
  const int32_t ahead = static_cast<int32_t>((line_number - static_cast<uint32_t>(near)) << 1) >> 1;
  return near + static_cast<uint64_t>(int64_t{ahead});
}

// One decoded head frame: header plus the body's bytes, borrowed from the frame.
struct Head {
  Header header;
  std::string_view body;
};

// Splits a head frame. Rejects with the reason: too short, wrong magic, wrong version, unknown type, a length that
// does not match the frame.
Result<Head> DecodeHead(std::string_view frame);

// The type of a head frame that was encoded here.
Type TypeOf(std::string_view frame);
// DATA_LOSS for more than kMaxPayloads.
Status CheckPayloads(size_t count);

// The header followed by `body`.
std::string EncodeHead(Type type, uint64_t sequence, std::string_view body);
// Fills in the header of a frame that begins with kHeaderBytes for it.
void WriteHeader(std::string& frame, Type type, uint64_t sequence);

// Overwrites the sequence of an encoded head frame in place.
void PatchSequence(std::string& frame, uint64_t sequence);
// The same with the number on its line.
void PatchNumber(std::string& frame, uint64_t number);

}  // namespace pathways::wire

#endif  // PTPATHWAYS_WIRE_MESSAGE_H_
