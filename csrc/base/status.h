// Status and Result<T>: how every room below the bindings reports failure.
//
// Ownership: a Status is a value; copies share one immutable representation.
// Threads:   immutable after construction, so safe to copy and read anywhere.
//
// Codes are those of absl::StatusCode and PJRT_Error_Code, so they cross the PJRT boundary and the wire unchanged.
// Messages follow one rule: what was required, what was got, what to do.
#ifndef PTPATHWAYS_BASE_STATUS_H_
#define PTPATHWAYS_BASE_STATUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pathways {

enum class Code : int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,  // of a value's life: it was given up (donated) to an earlier run
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The canonical upper-case name, "UNIMPLEMENTED" for kUnimplemented. Unknown numbers give "UNKNOWN".
std::string_view CodeName(Code code);

// True for the seventeen codes above; a decoder rejects anything else.
constexpr bool IsKnownCode(int32_t code) { return code >= 0 && code <= 16; }

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(Code code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : std::string_view(); }

  // "UNIMPLEMENTED: message", or "OK".
  std::string ToString() const;

  // The same code with `prefix + ": "` before the message. OK stays OK.
  Status WithPrefix(std::string_view prefix) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);
Status Unavailable(std::string message);
Status FailedPrecondition(std::string message);
Status ResourceExhausted(std::string message);
Status DeadlineExceeded(std::string message);
Status Cancelled(std::string message);
Status DataLoss(std::string message);
// A name, as messages show it: in single quotes.
std::string Quoted(std::string_view text);

// Either a value or the reason there is none. Dereferencing an error is a bug of ours and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    if (status_.ok()) status_ = Internal("a Result was built from an OK status without a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }
  T& operator*() & { return value_.value(); }
  const T& operator*() const& { return value_.value(); }
  T operator*() && { return std::move(value_).value(); }  // by value: the Result may be a temporary
  T* operator->() { return &value_.value(); }
  const T* operator->() const { return &value_.value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

#define PW_CONCAT_INNER_(a, b) a##b
#define PW_CONCAT_(a, b) PW_CONCAT_INNER_(a, b)

#define PW_RETURN_IF_ERROR(expr)                                    \
  do {                                                              \
    if (::pathways::Status pw_status_ = (expr); !pw_status_.ok()) { \
      return pw_status_;                                            \
    }                                                               \
  } while (0)

// PW_ASSIGN_OR_RETURN(auto value, Compute());
#define PW_ASSIGN_OR_RETURN(lhs, expr) PW_ASSIGN_OR_RETURN_IMPL_(PW_CONCAT_(pw_result_, __LINE__), lhs, expr)
#define PW_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                              \
  if (!result.ok()) return result.status();          \
  lhs = *std::move(result)

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_STATUS_H_
