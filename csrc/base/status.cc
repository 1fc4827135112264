#include "csrc/base/status.h"

namespace pathways {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(CodeName(code())) + ": " + rep_->message;
}

Status Status::WithPrefix(std::string_view prefix) const {
  if (ok()) return *this;
  return Status(code(), std::string(prefix) + ": " + rep_->message);
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }
Status InvalidArgument(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }
Status NotFound(std::string message) { return Status(Code::kNotFound, std::move(message)); }
Status Unimplemented(std::string message) { return Status(Code::kUnimplemented, std::move(message)); }
Status Internal(std::string message) { return Status(Code::kInternal, std::move(message)); }
Status Unavailable(std::string message) { return Status(Code::kUnavailable, std::move(message)); }
Status FailedPrecondition(std::string message) { return Status(Code::kFailedPrecondition, std::move(message)); }
Status ResourceExhausted(std::string message) { return Status(Code::kResourceExhausted, std::move(message)); }
Status DeadlineExceeded(std::string message) { return Status(Code::kDeadlineExceeded, std::move(message)); }
Status Cancelled(std::string message) { return Status(Code::kCancelled, std::move(message)); }
Status DataLoss(std::string message) { return Status(Code::kDataLoss, std::move(message)); }

}  // namespace pathways
