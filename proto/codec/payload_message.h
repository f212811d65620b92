// `SplitMessage` and `JoinMessage` read and write messages without protobuf's
// copies. A message consists of a small head and payloads. Protobuf parses and
// serializes the head, which has every field but `payloads`. The payloads stay
// in gRPC's slices. The bytes are those of the stock protobuf message.
//
// Thread-safe: free functions without state. A PayloadView is
// thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/scattered_bytes.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/received_slices.h"

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

// One payload in the slices that gRPC received. It holds references to them,
// which pin their read buffers until the view is destroyed or moved from.
class PayloadView final : public ScatteredBytes {
 public:
  PayloadView() = default;
  explicit PayloadView(std::vector<grpc::Slice> pieces);

  // Returns 0 after the view was moved from.
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void CopyRange(int64_t offset, absl::Span<std::byte> to) const override;
  void Release(int64_t offset) override;
  // Copies all size() bytes to `destination` and frees the slices while it
  // copies. The view is empty afterwards.
  void MoveTo(void* destination);

 private:
  // The pieces in order. They have any alignment and length.
  ReceivedSlices pieces_;
  std::vector<int64_t> ends_;  // The end of each piece in the payload.
};

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

// Returns a slice over memory that `owner` keeps valid. gRPC releases `owner`,
// on any thread, together with the last reference. For a sent message that can
// be after the end of the call.
grpc::Slice SliceOver(const void* data, int64_t size,
                      std::shared_ptr<const void> owner);

}  // namespace convgrad
