// `SplitMessage` and `JoinMessage` read and write messages without protobuf's
// copies. A message consists of a small head and payloads. Protobuf parses and
// serializes the head, which has every field but `payloads`. The payloads stay
// in gRPC's slices. The bytes are those of the stock protobuf message.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/message_parts.h"

namespace convgrad {

// Limits of a valid request, which usually has at most six operands and a few
// KiB of head. They keep the memory that parsing allocates in proportion to the
// request.
inline constexpr int kMaxPayloads = 1024;
inline constexpr int64_t kMaxHeadBytes = int64_t{1} << 20;
// Estimated memory of a parsed head per byte. 48 MiB of empty elements of a
// repeated field, 2 bytes each, took 1.4 GiB (protobuf 3.21).
inline constexpr int64_t kMemoryPerHeadByte = 32;

// gRPC frames a message with 32 bits of length.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 32) - 1;

// Returns OK if there is memory to parse a head of `bytes`.
using AdmitHead = std::function<absl::Status(int64_t bytes)>;

// Parses all fields of `*message` except `payloads` (kPayloadsField) into
// `*head`, and returns the payloads in order. Accepts fields in any order.
// Empties `*message` in any case. Calls `admit`, unless it is null, before it
// parses the head.
// Errors: kInvalidArgument, reason MALFORMED, for truncated messages, lengths
// beyond the message, groups, payloads of another wire type, and anything that
// protobuf refuses; reason LIMIT_EXCEEDED for more than kMaxPayloads or
// kMaxHeadBytes; those of `admit`.
absl::StatusOr<std::vector<PayloadView>> SplitMessage(
    grpc::ByteBuffer* message, google::protobuf::Message* head,
    const AdmitHead& admit = nullptr);

// Returns the message of `head` followed by `payloads`, which it references
// without a copy. Requires: the payloads field of `head` is empty.
// Errors: kResourceExhausted, reason LIMIT_EXCEEDED, beyond kMaxMessageBytes.
absl::StatusOr<grpc::ByteBuffer> JoinMessage(
    const google::protobuf::Message& head, std::vector<grpc::Slice> payloads);

// Returns the sizes of `payloads`, as DecodeOperation takes them.
std::vector<int64_t> SizesOf(absl::Span<const PayloadView> payloads);

}  // namespace convgrad
