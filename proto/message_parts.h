// `SplitParts` splits a message that gRPC received into its head and its
// payloads. The head has every field but `payloads`. The payloads stay in
// gRPC's slices. Needs no protobuf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/scattered_bytes.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace convgrad {

// The field number of `payloads` in every request and response.
inline constexpr int kPayloadsField = 536870911;
// Its tag: the number and the wire type of bytes.
inline constexpr uint32_t kPayloadsTag = uint32_t{kPayloadsField} << 3 | 2;

// One payload in the slices that gRPC received. It holds references to them,
// which pin their read buffers until the view is destroyed or moved from.
//
// Received bytes count in the server's resource quota, and freeing them may
// wake gRPC's memory reclaimer. gRPC 1.51 crashes if that happens in the
// destructor of a grpc::Slice, which sets up no execution context
// (https://github.com/grpc/grpc/pull/28655). Therefore the last reference to
// such a slice must be in this class or in a grpc::ByteBuffer.
class PayloadView final : public ScatteredBytes {
 public:
  PayloadView() = default;
  explicit PayloadView(std::vector<grpc::Slice> pieces);
  PayloadView(PayloadView&& other) noexcept { *this = std::move(other); }
  PayloadView& operator=(PayloadView&& other) noexcept;
  ~PayloadView() override { PayloadView::Release(size()); }

  // Returns 0 after the view was moved from.
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void CopyRange(int64_t offset, absl::Span<std::byte> to) const override;
  void Release(int64_t offset) override;
  // Copies all size() bytes to `destination` and frees the slices while it
  // copies. The view is empty afterwards.
  void MoveTo(void* destination);

 private:
  // The pieces in order. They have any alignment and length.
  std::vector<grpc::Slice> pieces_;
  std::vector<int64_t> ends_;  // The end of each piece in the payload.
  size_t released_ = 0;        // Number of leading pieces that are released.
};

// Limits on a received message. Value type.
struct MessageLimits {
  int64_t head_bytes = std::numeric_limits<int64_t>::max();
  int64_t payloads = std::numeric_limits<int64_t>::max();
};

// Move-only.
struct MessageParts {
  std::string head;  // in the message's order
  std::vector<PayloadView> payloads;
};

// Returns the parts of `message`. Holds references to its slices meanwhile, so
// `message` must have some, too (see PayloadView).
// Errors: kInvalidArgument, reason MALFORMED, for truncated messages, lengths
// beyond the message, groups and payloads of another wire type; reason
// LIMIT_EXCEEDED beyond `limits`.
absl::StatusOr<MessageParts> SplitParts(const grpc::ByteBuffer& message,
                                        const MessageLimits& limits = {});

// Appends `value` in protobuf's encoding.
void AppendVarint(uint64_t value, std::string* text);

// Returns a slice over memory that `owner` keeps valid. gRPC releases `owner`,
// on any thread, together with the last reference. For a sent message that can
// be after the end of the call.
grpc::Slice SliceOver(const void* data, int64_t size,
                      std::shared_ptr<const void> owner);

}  // namespace convgrad
