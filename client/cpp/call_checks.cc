#include "client/cpp/call_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/core/field_errors.h"
#include "proto/call_metadata.h"

namespace convgrad {
// Uses getentropy because constructing a std::random_device takes 30 us in a
// virtual machine: it queries the CPU's features each time.
std::string RandomRequestId() {
  std::string id(16, '\0');
  if (getentropy(id.data(), id.size()) != 0) std::abort();
  return id;
}

absl::Status CheckHeader(absl::string_view field, absl::string_view value) {
  if (std::all_of(value.begin(), value.end(), absl::ascii_isprint)) {
    return absl::OkStatus();
  }
  return Malformed(field, "other characters", "printable ASCII");
}

absl::Status CheckOptions(const OperationCall& call) {
  RETURN_IF_ERROR(CheckHeader("traceparent", call.traceparent));
  const std::vector<std::string> backends = BackendNames();
  if (!call.backend.empty() && std::find(backends.begin(), backends.end(),
                                         call.backend) == backends.end()) {
    return InvalidEnum("options.backend", absl::StrCat("'", call.backend, "'"),
                       absl::StrJoin(backends, ", "));
  }
  if (call.priority.empty() || call.priority == "batch" ||
      call.priority == "interactive") {
    return absl::OkStatus();
  }
  return InvalidEnum(kPriorityKey, absl::StrCat("'", call.priority, "'"),
                     "batch or interactive");
}

std::string SessionMethod(absl::string_view name) {
  return absl::StrCat("/convgrad.v1.ConvGradSessions/", name);
}

std::string MethodOf(const ConvOperation& operation) {
  return operation.direction == Direction::kForward
             ? "/convgrad.v1.ConvGrad/ConvForward"
             : "/convgrad.v1.ConvGrad/ConvBackward";
}

CallOptions OptionsOf(const OperationCall& call) {
  return {.backend = call.backend,
          .deterministic = call.deterministic,
          .request_id =
              call.request_id.empty() ? RandomRequestId() : call.request_id,
          .self_check = call.self_check,
          .count_nonfinite = call.count_nonfinite};
}

absl::Status CheckByteCount(absl::string_view field,
                            absl::Span<const std::byte> bytes,
                            const TensorDescriptor& tensor) {
  const int64_t expected = ByteSize(tensor).value_or(-1);
  if (std::ssize(bytes) == expected) return absl::OkStatus();
  return InvalidField(Reason::kByteCountMismatch, field,
                      absl::StrCat(bytes.size(), " bytes"),
                      absl::StrCat(expected, " bytes, ", ToString(tensor)));
}

bool HasReason(const absl::Status& status, Reason reason) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  return detail && detail->reason == reason;
}

bool IsTooLarge(const absl::Status& status) {
  const std::optional<ErrorDetail> detail = DetailOf(status);
  return detail && absl::IsResourceExhausted(status) &&
         detail->reason == Reason::kLimitExceeded &&
         (detail->field == "request" || detail->field == "response");
}

absl::Status BadReply(absl::string_view field, absl::string_view found,
                      absl::string_view expected) {
  return MakeError(absl::StatusCode::kInternal,
                   {Reason::kMalformed, absl::StrCat("reply.", field),
                    std::string(found), std::string(expected)});
}

absl::StatusOr<std::vector<PayloadView>> SplitReply(
    grpc::ByteBuffer* message, google::protobuf::Message* response) {
  absl::StatusOr<std::vector<PayloadView>> payloads =
      SplitMessage(message, response);
  if (payloads.ok()) return payloads;
  return BadReply("message", payloads.status().message(), "a response");
}

absl::StatusOr<AlignedBuffer> TakePayload(absl::string_view field,
                                          const v1::Tensor& tensor,
                                          int64_t expected_bytes,
                                          absl::Span<std::byte> destination,
                                          absl::Span<PayloadView> payloads) {
  const int64_t index = tensor.inline_().payload_index();
  if (!tensor.has_inline_() || index < 0 || index >= std::ssize(payloads)) {
    return BadReply(field, "no payload", "its bytes inline");
  }
  PayloadView& payload = payloads[index];
  if (payload.size() != expected_bytes) {
    return BadReply(field, absl::StrCat(payload.size(), " bytes"),
                    absl::StrCat(expected_bytes));
  }
  AlignedBuffer own;
  if (destination.data() == nullptr) {
    ASSIGN_OR_RETURN(own, AlignedBuffer::Allocate(expected_bytes));
  }
  payload.MoveTo(destination.data() ? destination.data() : own.data());
  return own;
}

absl::Status CheckNamed(const v1::NamedTensor& named,
                        const ResultRequest& wanted) {
  const std::string name(NameOf(wanted.which));
  if (DecodeResult(named.which()) != wanted.which) {
    return BadReply("results", v1::Result_Name(named.which()), name);
  }
  ASSIGN_OR_RETURN(
      const TensorDescriptor descriptor,
      DecodeTensor(named.tensor(), wanted.descriptor.groups, name));
  if (descriptor == wanted.descriptor) return absl::OkStatus();
  return BadReply(name, ToString(descriptor), ToString(wanted.descriptor));
}

}  // namespace convgrad
