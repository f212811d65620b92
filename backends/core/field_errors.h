// Short forms of MakeError for frequent errors. status.h has Busy,
// LimitExceeded, NotFound and Unsupported. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "backends/core/status.h"

namespace convgrad {

// Short for InvalidField. The reason is INVALID_ENUM, MALFORMED, MISSING,
// OUT_OF_RANGE or SHAPE_MISMATCH.
inline absl::Status InvalidEnum(absl::string_view field,
                                const absl::AlphaNum& found,
                                const absl::AlphaNum& expected) {
  return InvalidField(Reason::kInvalidEnum, field, found, expected);
}
inline absl::Status Malformed(absl::string_view field,
                              const absl::AlphaNum& found,
                              const absl::AlphaNum& expected) {
  return InvalidField(Reason::kMalformed, field, found, expected);
}
inline absl::Status Missing(absl::string_view field,
                            const absl::AlphaNum& found,
                            const absl::AlphaNum& expected) {
  return InvalidField(Reason::kMissing, field, found, expected);
}
inline absl::Status OutOfRange(absl::string_view field,
                               const absl::AlphaNum& found,
                               const absl::AlphaNum& expected) {
  return InvalidField(Reason::kOutOfRange, field, found, expected);
}
inline absl::Status ShapeMismatch(absl::string_view field,
                                  const absl::AlphaNum& found,
                                  const absl::AlphaNum& expected) {
  return InvalidField(Reason::kShapeMismatch, field, found, expected);
}

// Short for MakeError with kDeadlineExceeded and the reason DEADLINE.
inline absl::Status DeadlineExceeded(absl::string_view field,
                                     const absl::AlphaNum& found,
                                     const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   {Reason::kDeadline, std::string(field),
                    std::string(found.Piece()), std::string(expected.Piece())});
}

// Short for MakeError with kFailedPrecondition.
inline absl::Status FailedPrecondition(Reason reason, absl::string_view field,
                                       const absl::AlphaNum& found,
                                       const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {reason, std::string(field), std::string(found.Piece()),
                    std::string(expected.Piece())});
}

}  // namespace convgrad
