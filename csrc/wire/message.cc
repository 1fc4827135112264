#include "csrc/wire/message.h"

#include <cstring>

#include "csrc/base/bytes.h"

namespace pathways::wire {
namespace {

// magic u32 | version u16 | type u16 | sequence u64 | body_bytes u32 | number u32
constexpr size_t kTypeOffset = 6;
constexpr size_t kSequenceOffset = 8;
constexpr size_t kNumberOffset = 20;

}  // namespace

std::string_view TypeName(Type type) {
  switch (type) {
    case Type::kHello:
      return "HELLO";
    case Type::kWelcome:
      return "WELCOME";
    case Type::kReject:
      return "REJECT";
    case Type::kTopology:
      return "TOPOLOGY";
    case Type::kHeartbeat:
      return "HEARTBEAT";
    case Type::kGoodbye:
      return "GOODBYE";
    case Type::kRegister:
      return "REGISTER";
    case Type::kRegistered:
      return "REGISTERED";
    case Type::kUnregister:
      return "UNREGISTER";
    case Type::kPut:
      return "PUT";
    case Type::kRun:
      return "RUN";
    case Type::kDone:
      return "DONE";
    case Type::kFetch:
      return "FETCH";
    case Type::kFetched:
      return "FETCHED";
    case Type::kFree:
      return "FREE";
    case Type::kCopy:
      return "COPY";
    case Type::kExpect:
      return "EXPECT";
    case Type::kBufferFailed:
      return "BUFFER_FAILED";
    case Type::kHostLost:
      return "HOST_LOST";
    case Type::kData:
      return "DATA";
    case Type::kRelease:
      return "RELEASE";
    case Type::kQuery:
      return "QUERY";
    case Type::kReply:
      return "REPLY";
    case Type::kOwnerGone:
      return "OWNER_GONE";
    case Type::kPeerHello:
      return "PEER_HELLO";
    case Type::kRegisterPlan:
      return "REGISTER_PLAN";
    case Type::kPlanReady:
      return "PLAN_READY";
    case Type::kRunProgram:
      return "RUN_PROGRAM";
    case Type::kRequestSlice:
      return "REQUEST_SLICE";
    case Type::kSliceGranted:
      return "SLICE_GRANTED";
    case Type::kReleaseSlice:
      return "RELEASE_SLICE";
    case Type::kSpill:
      return "SPILL";
    case Type::kRestore:
      return "RESTORE";
    case Type::kAbort:
      return "ABORT";
    case Type::kStalled:
      return "STALLED";
    case Type::kCollectiveChunk:
      return "COLLECTIVE_CHUNK";
    case Type::kCollectiveTaken:
      return "COLLECTIVE_TAKEN";
    case Type::kIslandJoin:
      return "ISLAND_JOIN";
    case Type::kKeyValue:
      return "KEY_VALUE";
    case Type::kIslandAnswer:
      return "ISLAND_ANSWER";
    case Type::kSave:
      return "SAVE";
    case Type::kLoad:
      return "LOAD";
    case Type::kStored:
      return "STORED";
    case Type::kOpenPipeline:
      return "OPEN_PIPELINE";
    case Type::kFeed:
      return "FEED";
    case Type::kClosePipeline:
      return "CLOSE_PIPELINE";
    case Type::kRunInPlace:
      return "RUN_IN_PLACE";
    case Type::kPeerSeen:
      return "PEER_SEEN";
    case Type::kTransferFailed:
      return "TRANSFER_FAILED";
    case Type::kRotate:
      return "ROTATE";
    case Type::kResume:
      return "RESUME";
  }
  return "UNKNOWN";
}

Result<Head> DecodeHead(std::string_view frame) {
  if (frame.size() < kHeaderBytes) {
    return DataLoss("expected a message header of 24 bytes, got a frame of " + std::to_string(frame.size()));
  }
  ByteReader reader(frame);
  const uint32_t magic = reader.Number<uint32_t>();
  if (magic != kMagic) return DataLoss("expected the magic bytes PWY1 at the start of a message, got others");
  const uint16_t version = reader.Number<uint16_t>();
  if (version != kProtocolVersion) {
    return FailedPrecondition("expected protocol version " + std::to_string(kProtocolVersion) + ", got " +
                              std::to_string(version) + "; install the same ptpathways on both machines");
  }
  Head head;
  const uint16_t type = reader.Number<uint16_t>();
  head.header.type = static_cast<Type>(type);
  if (TypeName(head.header.type) == "UNKNOWN") {
    return DataLoss("expected a known message type, got number " + std::to_string(type));
  }
  head.header.sequence = reader.Number<uint64_t>();
  head.header.body_bytes = reader.Number<uint32_t>();
  head.header.number = reader.Number<uint32_t>();
  if (head.header.number != 0 && (head.header.number & kOfALine) == 0) {
    return DataLoss("expected a message's number on its line to be 0 or to have its top bit set");
  }
  if (head.header.body_bytes > kMaxBodyBytes) {
    return DataLoss("expected a body of at most " + std::to_string(kMaxBodyBytes >> 20) + " MiB, got " +
                    std::to_string(head.header.body_bytes) + " bytes");
  }
  if (head.header.body_bytes != frame.size() - kHeaderBytes) {
    return DataLoss("expected a body of " + std::to_string(head.header.body_bytes) + " bytes after the header, got " +
                    std::to_string(frame.size() - kHeaderBytes));
  }
  head.body = frame.substr(kHeaderBytes);
  return head;
}

Status CheckPayloads(size_t count) {
  if (count <= kMaxPayloads) return OkStatus();
  return DataLoss("expected at most " + std::to_string(kMaxPayloads) + " frames behind a message's head, got " +
                  std::to_string(count));
}

Type TypeOf(std::string_view frame) {
  uint16_t type = 0;
  std::memcpy(&type, frame.data() + kTypeOffset, sizeof(type));
  return static_cast<Type>(type);
}

std::string EncodeHead(Type type, uint64_t sequence, std::string_view body) {
  std::string frame(kHeaderBytes, '\0');
  frame.append(body);
  WriteHeader(frame, type, sequence);
  return frame;
}

void WriteHeader(std::string& frame, Type type, uint64_t sequence) {
  const uint16_t version = kProtocolVersion;
  const uint16_t type_number = static_cast<uint16_t>(type);
  const uint32_t body_bytes = static_cast<uint32_t>(frame.size() - kHeaderBytes);
  std::memcpy(frame.data(), &kMagic, 4);
  std::memcpy(frame.data() + 4, &version, 2);
  std::memcpy(frame.data() + kTypeOffset, &type_number, 2);
  std::memcpy(frame.data() + kSequenceOffset, &sequence, 8);
  std::memcpy(frame.data() + 16, &body_bytes, 4);
}

void PatchSequence(std::string& frame, uint64_t sequence) { std::memcpy(frame.data() + kSequenceOffset, &sequence, 8); }

void PatchNumber(std::string& frame, uint64_t number) {
  const uint32_t in_header = LineNumber(number);
  std::memcpy(frame.data() + kNumberOffset, &in_header, sizeof(in_header));
}

}  // namespace pathways::wire
