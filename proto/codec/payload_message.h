// Requests and responses on the wire without protobuf's copies: a message is a
// small head (every field but `payloads`), parsed and serialised by protobuf,
// and payloads that stay in gRPC's slices. The bytes are those of the stock
// protobuf message.
//
// Thread-safe: free functions without state. A PayloadView is
// thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/operand_gather.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/received_slices.h"

namespace convgrad {

// More of either isn't an honest request: six operands and a page of head are
// usual. Keeps what parsing allocates in proportion to what is sent.
inline constexpr int kMaxPayloads = 1024;
inline constexpr int64_t kMaxHeadBytes = int64_t{1} << 20;
// What a parsed head may take for each of its bytes: 48 MiB of empty elements
// of a repeated field, 2 bytes each, took 1.4 GiB (protobuf 3.21).
inline constexpr int64_t kMemoryPerHeadByte = 32;

// gRPC frames a message with 32 bits of length.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 32) - 1;

// One payload as it lies in the slices that gRPC received; holds references to
// them, and so pins their read buffers until it is destroyed or moved from.
class PayloadView final : public ScatteredBytes {
 public:
  PayloadView() = default;
  explicit PayloadView(std::vector<grpc::Slice> pieces);

  // 0 once it was moved from.
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void CopyRange(int64_t offset, absl::Span<std::byte> to) const override;
  void Release(int64_t offset) override;
  // Copies all size() bytes to `destination` and frees the slices while it
  // copies. The view is empty afterwards.
  void MoveTo(void* destination);

 private:
  // In order, neither aligned nor of equal length.
  ReceivedSlices pieces_;
  std::vector<int64_t> ends_;  // of each, in the payload
};

// Returns whether there is memory to parse a head of `bytes`.
using AdmitHead = std::function<absl::Status(int64_t bytes)>;

// Parses everything in `*message` but field `payloads` (kPayloadsField) into
// `*head` and returns the payloads, in order. Accepts fields in any order.
// Empties `*message` in any case.
// Errors: kInvalidArgument, reason MALFORMED: truncated, lengths beyond the
// message, groups, payloads of another wire type, what protobuf refuses; reason
// LIMIT_EXCEEDED: more than kMaxPayloads or kMaxHeadBytes; those of `admit`,
// which is asked before the head is parsed, unless it is null.
absl::StatusOr<std::vector<PayloadView>> SplitMessage(
    grpc::ByteBuffer* message, google::protobuf::Message* head,
    const AdmitHead& admit = nullptr);

// Returns the message of `head` followed by `payloads`, which it references
// without a copy. Requires: the payloads field of `head` is empty.
// Errors: kResourceExhausted, reason LIMIT_EXCEEDED beyond kMaxMessageBytes.
absl::StatusOr<grpc::ByteBuffer> JoinMessage(
    const google::protobuf::Message& head, std::vector<grpc::Slice> payloads);

// Returns the sizes of `payloads`, as DecodeOperation wants them.
std::vector<int64_t> SizesOf(absl::Span<const PayloadView> payloads);

// Returns a slice over memory that `owner` keeps; released, on whatever thread,
// when gRPC has let go of the last reference: for a sent message that can be
// after the call is over.
grpc::Slice SliceOver(const void* data, int64_t size,
                      std::shared_ptr<const void> owner);

}  // namespace convgrad
