#include "server/rpc/calls/status_conversion.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "backends/core/status.h"
#include "convgrad/v1/error.pb.h"
#include "proto/call_metadata.h"

namespace convgrad {
namespace {

// gRPC refuses more than 8 KiB of trailers. Percent-encoding makes a message up
// to three times as long, and base64 makes details a third longer.
constexpr size_t kMaxMessage = 1024;
constexpr size_t kMaxFieldBytes = 512;

// Returns `text` in printable ASCII, because it may quote bytes of a request
// that aren't valid in a string field.
std::string Printable(absl::string_view text, size_t max_size) {
  std::string printable(text.substr(0, max_size));
  for (char& c : printable) {
    if (!absl::ascii_isprint(c)) c = '?';
  }
  return printable;
}

// absl uses gRPC's numbers. A test checks each of them.
grpc::StatusCode CodeOf(absl::StatusCode code) {
  const auto number = static_cast<int>(code);
  return number >= 0 && number <= grpc::StatusCode::UNAUTHENTICATED
             ? static_cast<grpc::StatusCode>(number)
             : grpc::StatusCode::UNKNOWN;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(CodeOf(status.code()),
                      Printable(status.message(), kMaxMessage));
}

std::vector<std::pair<std::string, std::string>> TrailersOf(
    const absl::Status& status) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  if (status.ok() || !detail) return {};
  v1::ErrorDetail message;
  message.set_reason(std::string(ReasonName(detail->reason)));
  message.set_field(Printable(detail->field, kMaxFieldBytes));
  message.set_found(Printable(detail->found, kMaxFieldBytes));
  message.set_expected(Printable(detail->expected, kMaxFieldBytes));
  std::vector<std::pair<std::string, std::string>> trailers;
  trailers.emplace_back(kErrorTrailer, message.SerializeAsString());
  if (status.code() == absl::StatusCode::kResourceExhausted &&
      detail->reason == Reason::kBusy) {
    trailers.emplace_back(kPushbackTrailer, kPushbackMs);
  }
  return trailers;
}

}  // namespace convgrad
