// Provides the parts that unary calls and streamed calls share: request ids,
// call options, and checks of metadata and replies.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/status.h"
#include "client/cpp/operation_call.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// The most payload bytes of a message: gRPC counts a message's bytes in 31
// bits, and a head comes beside the payload.
inline constexpr int64_t kMaxPayloadBytes =
    (int64_t{1} << 31) - 1 - 2 * kMaxHeadBytes;

// Returns 16 random bytes.
std::string RandomRequestId();

// Returns kInvalidArgument for a header value that would make gRPC abort. The
// error doesn't quote the value because it may be a secret.
absl::Status CheckHeader(absl::string_view field, absl::string_view value);

// Checks the call's backend, priority and traceparent.
// Errors: kInvalidArgument if the protocol has no such value, the server would
// refuse it or gRPC would abort at it.
absl::Status CheckOptions(const OperationCall& call);

// Paths of RPCs.
inline constexpr char kCapabilitiesMethod[] =
    "/convgrad.v1.ConvGrad/GetCapabilities";
// Returns the path of a method of ConvGradSessions.
std::string SessionMethod(absl::string_view name);
// Returns the path of the RPC that runs the operation.
std::string MethodOf(const ConvOperation& operation);

// Returns the call's options, with a new request id if it has none.
CallOptions OptionsOf(const OperationCall& call);

// Returns kInvalidArgument naming `field` unless the caller's `bytes` are as
// many as `tensor` has.
absl::Status CheckByteCount(absl::string_view field,
                            absl::Span<const std::byte> bytes,
                            const TensorDescriptor& tensor);

// Returns whether the detail of `status` has this reason.
bool HasReason(const absl::Status& status, Reason reason);

// Returns whether the server's messages are too small for the call
// (error.proto).
bool IsTooLarge(const absl::Status& status);

// Returns kInternal for a reply that doesn't fit the operation.
absl::Status BadReply(absl::string_view field, absl::string_view found,
                      absl::string_view expected);

// Parses a reply and returns its payloads. Errors: kInternal.
absl::StatusOr<std::vector<PayloadView>> SplitReply(
    grpc::ByteBuffer* message, google::protobuf::Message* response);

// Moves the payload that `tensor` names to `destination` or, if that is null,
// to memory that it returns. Requires: `expected_bytes` is the size of
// `destination` unless that is null.
// Errors: kInternal naming `field`; kResourceExhausted.
absl::StatusOr<AlignedBuffer> TakePayload(absl::string_view field,
                                          const v1::Tensor& tensor,
                                          int64_t expected_bytes,
                                          absl::Span<std::byte> destination,
                                          absl::Span<PayloadView> payloads);

// Returns OK if `named` describes the result that `wanted` asks for.
// Errors: kInternal.
absl::Status CheckNamed(const v1::NamedTensor& named,
                        const ResultRequest& wanted);

}  // namespace convgrad
