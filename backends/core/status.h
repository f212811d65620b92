// Errors as every part of convgrad makes them: an absl::Status whose message
// names the field, the value found and the value expected, and which carries
// the same three as data so that no layer has to parse a sentence.
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
  kUnknownField,        // a critical field that this server doesn't know
  kInvalidEnum,         // enum value unset where needed, or unknown
  kMissing,             // a tensor or field that the request needs
  kNotFound,            // a name that stands for nothing here
  kDuplicate,           // a result asked for twice
  kShapeMismatch,       // dims that disagree with the problem
  kOutOfRange,          // a number outside its range
  kOverflow,            // a size beyond 63 bits
  kByteCountMismatch,   // payload bytes that disagree with the descriptor
  kDtypeMismatch,       // dtypes that may not meet in one request
  kLayoutMismatch,      // a layout that doesn't fit the tensor's role
  kUnsupported,         // valid, but not built here
  kBackendUnavailable,  // a named backend that can't run here
  kLimitExceeded,       // can never fit: message, memory or work limit
  kBusy,                // queue or memory full now; worth a retry
  kDraining,            // the server is going away
  kDeadline,            // too late
  kCancelled,           // the caller gave up
  kUnauthenticated,     // the caller doesn't show who it is
  kForbidden,           // the caller may not do this
  kTakenOver,           // a call of a session that another process has resumed
  kEpochEnded,          // an earlier change of the session's epoch failed
  kOutOfOrder,          // a change whose number doesn't come next
  kInternal,            // the library or the server failed
};

// Returns the stable UPPER_SNAKE_CASE name of `reason`, "INTERNAL" for an
// unknown one.
absl::string_view ReasonName(Reason reason);

// What an error is about. Any part may be empty.
struct ErrorDetail {
  Reason reason = Reason::kInternal;
  std::string field;     // dotted path in the request, e.g. "problem.stride"
  std::string found;     // the value found there
  std::string expected;  // what would have been accepted
};

// Returns a status of `code` with the message
// "<field>: found <found>, expected <expected>" and `detail` attached.
absl::Status MakeError(absl::StatusCode code, const ErrorDetail& detail);

// Short for MakeError(kInvalidArgument, {reason, field, found, expected}).
absl::Status InvalidField(Reason reason, absl::string_view field,
                          absl::string_view found, absl::string_view expected);

// Returns the detail attached to `status`, nullopt if there is none.
std::optional<ErrorDetail> DetailOf(const absl::Status& status);

// Returns `status` with `prefix` put before the detail's field and the message
// remade; unchanged if OK or without detail.
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
