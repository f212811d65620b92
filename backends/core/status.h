// Creates convgrad's errors: an absl::Status whose message names the field, the
// value found and the value expected. The status also carries the three as
// data, so that no layer needs to parse the message.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// Machine-readable cause of a refusal or failure. Closed list; the names
// (ReasonName) are part of the wire contract.
enum class Reason {
  kMalformed,           // bytes that aren't a message of this contract
  kUnknownField,        // a critical field unknown to this server
  kInvalidEnum,         // an unknown or missing enum value
  kMissing,             // a missing tensor or field
  kNotFound,            // a name that doesn't exist here
  kDuplicate,           // a result requested twice
  kShapeMismatch,       // dims that disagree with the problem
  kOutOfRange,          // a number outside its range
  kOverflow,            // a size beyond 63 bits
  kByteCountMismatch,   // payload bytes that disagree with the descriptor
  kDtypeMismatch,       // a combination of dtypes not allowed
  kLayoutMismatch,      // a layout that doesn't fit the tensor's role
  kUnsupported,         // valid, but not implemented here
  kBackendUnavailable,  // a requested backend can't run here
  kLimitExceeded,       // exceeds a message, memory or work limit
  kBusy,                // queue or memory full now; retry later
  kDraining,            // the server is shutting down
  kDeadline,            // deadline exceeded
  kCancelled,           // the caller cancelled
  kUnauthenticated,     // the caller isn't authenticated
  kForbidden,           // the caller may not do this
  kTakenOver,           // a call of a session that another process has resumed
  kRestored,            // a call from before the server's restart
  kEpochEnded,          // an earlier change of the session's epoch failed
  kOutOfOrder,          // a change whose number isn't the next
  kInternal,            // the library or the server failed
};

// Returns the stable UPPER_SNAKE_CASE name of `reason`, "INTERNAL" for an
// unknown one.
absl::string_view ReasonName(Reason reason);

// Details of an error. Any part may be empty.
struct ErrorDetail {
  Reason reason = Reason::kInternal;
  std::string field;     // dotted path in the request, e.g. "problem.stride"
  std::string found;     // the value found there
  std::string expected;  // what the server accepts
};

// Returns a status of `code` with the message
// "<field>: found <found>, expected <expected>" and `detail` attached.
absl::Status MakeError(absl::StatusCode code, const ErrorDetail& detail);

// Short for MakeError(kInvalidArgument, {reason, field, found, expected}).
// `found` and `expected` may be numbers, here and below.
absl::Status InvalidField(Reason reason, absl::string_view field,
                          const absl::AlphaNum& found,
                          const absl::AlphaNum& expected);

// Likewise, for kResourceExhausted with the reasons BUSY and LIMIT_EXCEEDED,
// kNotFound with NOT_FOUND, and kUnimplemented with UNSUPPORTED.
absl::Status Busy(absl::string_view field, const absl::AlphaNum& found,
                  const absl::AlphaNum& expected);
absl::Status LimitExceeded(absl::string_view field, const absl::AlphaNum& found,
                           const absl::AlphaNum& expected);
absl::Status NotFound(absl::string_view field, const absl::AlphaNum& found,
                      const absl::AlphaNum& expected);
absl::Status Unsupported(absl::string_view field, const absl::AlphaNum& found,
                         const absl::AlphaNum& expected);

// Returns the detail attached to `status`, nullopt if there is none.
std::optional<ErrorDetail> DetailOf(const absl::Status& status);

// Returns `status` with `prefix` added to the field in its detail and message;
// unchanged if OK or without detail.
absl::Status WithFieldPrefix(const absl::Status& status,
                             absl::string_view prefix);

}  // namespace convgrad

// Status helpers, the project's only macros.
#define CONVGRAD_CONCAT_INNER(a, b) a##b
#define CONVGRAD_CONCAT(a, b) CONVGRAD_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression)                           \
  ASSIGN_OR_RETURN_INNER(CONVGRAD_CONCAT(statusor_, __LINE__), declaration, \
                         expression)
#define ASSIGN_OR_RETURN_INNER(statusor, declaration, expression) \
  auto statusor = (expression);                                   \
  if (!statusor.ok()) return statusor.status();                   \
  declaration = *std::move(statusor)
