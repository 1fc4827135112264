// Input: something that happened to the controller, with all that its decisions depend on: who spoke, the bytes, the
// time, and what was asked of the system. Core is a pure function of its inputs, so a standby that is given the same
// ones is the same controller (standby.h). As a record of bytes an input goes from one process to the other.
//
// Ownership: a value; an Input made of a record borrows from it. Threads: plain values.
#ifndef PTPATHWAYS_CONTROLLER_INPUT_H_
#define PTPATHWAYS_CONTROLLER_INPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/controller/cluster_state.h"

namespace pathways::controller {

struct Input {
  enum class Kind : uint8_t {
    kMessage,  // of a connection
    kClosed,   // a connection ended
    kTick,
    kServing,  // a process serves from now on, and has no connection yet
    kEnding,   // the process ends in order, and is about to say so to everyone
    kRotate,   // there is to be another join token
    kRotated,  // its keys are asked for from now on
  };
  Kind kind = Kind::kTick;
  uint64_t now_ms = 0;
  std::string_view route{};    // kMessage, kClosed: the connection
  std::string_view sender{};   // kMessage: as what it was admitted; only of a HELLO or HEARTBEAT
  std::string_view address{};  // kMessage: from where; only of a HELLO
  // kMessage. kServing: where it listens, a line each. kRotate: the tokens of Core::Rotation, a line each.
  std::string head{};
  std::vector<Payload> payloads{};
  std::vector<uint64_t> gone{};   // kTick: of Core::ProcessesInDoubt, those that are no more
  uint64_t digest = 0;            // kTick: Core::digest before it
  uint64_t pid = 0, standby = 0;  // kServing: of the process, and of its standby
};

// The bytes of an input, in pieces that borrow from it and from this object. To be used again.
class RecordOf {
 public:
  const std::vector<std::string_view>& Encode(const Input& input);

 private:
  std::string numbers_;
  std::vector<std::string_view> pieces_;
};

// DATA_LOSS: these are not the bytes of an input.
Result<Input> InputOf(std::string_view record);

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_INPUT_H_
