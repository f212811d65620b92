// What calls on one message and on a stream have in common: the options, and
// what is checked of a reply.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

// The most payload bytes of a message: gRPC counts a message's bytes in 31
// bits, and a head comes beside the payload.
inline constexpr int64_t kMaxPayloadBytes =
    (int64_t{1} << 31) - 1 - 2 * kMaxHeadBytes;

// Returns 16 random bytes.
std::string RandomRequestId();

// Returns kInvalidArgument if gRPC would abort at such a header. The value is
// in no error: it may be a secret.
absl::Status CheckHeader(absl::string_view field, absl::string_view value);

// Checks what goes into the call's metadata: priority and traceparent.
// Errors: kInvalidArgument: what the server would say of them, or what gRPC
// would abort at.
absl::Status CheckMetadata(const OperationCall& call);

// Returns the path of the RPC that runs the operation.
std::string MethodOf(const ConvOperation& operation);

// Returns the call's options, with a new request id if it has none.
CallOptions OptionsOf(const OperationCall& call);

// Returns kInternal: a reply that doesn't fit the operation.
absl::Status BadReply(absl::string_view field, absl::string_view found,
                      absl::string_view expected);

// Returns OK if `named` describes what was asked for.
absl::Status CheckNamed(const v1::NamedTensor& named,
                        const ResultRequest& wanted);

}  // namespace convgrad
