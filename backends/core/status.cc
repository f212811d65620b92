#include "backends/core/status.h"

#include <array>

namespace convgrad {
namespace {

constexpr absl::string_view kReasonUrl = "convgrad/reason";
constexpr absl::string_view kFieldUrl = "convgrad/field";
constexpr absl::string_view kFoundUrl = "convgrad/found";
constexpr absl::string_view kExpectedUrl = "convgrad/expected";

std::string PayloadOf(const absl::Status& status, absl::string_view url) {
  auto payload = status.GetPayload(url);
  return payload ? std::string(*payload) : std::string();
}

// Indexed by Reason.
constexpr absl::string_view kReasonNames[] = {
    "MALFORMED",      "UNKNOWN_FIELD",
    "INVALID_ENUM",   "MISSING",
    "NOT_FOUND",      "DUPLICATE",
    "SHAPE_MISMATCH", "OUT_OF_RANGE",
    "OVERFLOW",       "BYTE_COUNT_MISMATCH",
    "DTYPE_MISMATCH", "LAYOUT_MISMATCH",
    "UNSUPPORTED",    "BACKEND_UNAVAILABLE",
    "LIMIT_EXCEEDED", "BUSY",
    "DRAINING",       "DEADLINE",
    "CANCELLED",      "UNAUTHENTICATED",
    "FORBIDDEN",      "TAKEN_OVER",
    "RESTORED",       "EPOCH_ENDED",
    "OUT_OF_ORDER",   "INTERNAL"};
static_assert(std::size(kReasonNames) ==
              static_cast<size_t>(Reason::kInternal) + 1);

ErrorDetail DetailWith(Reason reason, absl::string_view field,
                       const absl::AlphaNum& found,
                       const absl::AlphaNum& expected) {
  return {reason, std::string(field), std::string(found.Piece()),
          std::string(expected.Piece())};
}

}  // namespace

absl::string_view ReasonName(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < std::size(kReasonNames) ? kReasonNames[index] : "INTERNAL";
}

absl::Status MakeError(absl::StatusCode code, const ErrorDetail& detail) {
  std::string message = detail.field;
  if (!detail.found.empty()) {
    absl::StrAppend(&message, message.empty() ? "" : ": ", "found ",
                    detail.found);
  }
  if (!detail.expected.empty()) {
    absl::StrAppend(&message, detail.found.empty() ? ": " : ", ", "expected ",
                    detail.expected);
  }
  absl::Status status(code, message);
  status.SetPayload(
      kReasonUrl, absl::Cord(std::to_string(static_cast<int>(detail.reason))));
  status.SetPayload(kFieldUrl, absl::Cord(detail.field));
  status.SetPayload(kFoundUrl, absl::Cord(detail.found));
  status.SetPayload(kExpectedUrl, absl::Cord(detail.expected));
  return status;
}

absl::Status InvalidField(Reason reason, absl::string_view field,
                          const absl::AlphaNum& found,
                          const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   DetailWith(reason, field, found, expected));
}

absl::Status Busy(absl::string_view field, const absl::AlphaNum& found,
                  const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   DetailWith(Reason::kBusy, field, found, expected));
}

absl::Status LimitExceeded(absl::string_view field, const absl::AlphaNum& found,
                           const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   DetailWith(Reason::kLimitExceeded, field, found, expected));
}

absl::Status NotFound(absl::string_view field, const absl::AlphaNum& found,
                      const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kNotFound,
                   DetailWith(Reason::kNotFound, field, found, expected));
}

absl::Status Unsupported(absl::string_view field, const absl::AlphaNum& found,
                         const absl::AlphaNum& expected) {
  return MakeError(absl::StatusCode::kUnimplemented,
                   DetailWith(Reason::kUnsupported, field, found, expected));
}

std::optional<ErrorDetail> DetailOf(const absl::Status& status) {
  if (!status.GetPayload(kReasonUrl)) return std::nullopt;
  return ErrorDetail{
      static_cast<Reason>(std::stoi(PayloadOf(status, kReasonUrl))),
      PayloadOf(status, kFieldUrl), PayloadOf(status, kFoundUrl),
      PayloadOf(status, kExpectedUrl)};
}

absl::Status WithFieldPrefix(const absl::Status& status,
                             absl::string_view prefix) {
  std::optional<ErrorDetail> detail = DetailOf(status);
  if (status.ok() || !detail) return status;
  detail->field = absl::StrCat(prefix, detail->field);
  return MakeError(status.code(), *detail);
}

}  // namespace convgrad
