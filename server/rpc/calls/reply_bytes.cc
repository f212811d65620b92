#include "server/rpc/calls/reply_bytes.h"

#include <utility>

#include "backends/core/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

absl::StatusOr<ReplyBytes> BytesOfReply(const ChangeOrder::Reply& reply) {
  // DumpToSingleSlice isn't const, but leaves the buffer as it is.
  grpc::ByteBuffer buffer(*static_cast<const grpc::ByteBuffer*>(reply.get()));
  auto slice = std::make_shared<grpc::Slice>();
  if (buffer.Length() > 0 && !buffer.DumpToSingleSlice(slice.get()).ok()) {
    return Busy("reply", "no memory for its bytes", "");
  }
  const absl::Span<const std::byte> bytes(
      reinterpret_cast<const std::byte*>(slice->begin()), slice->size());
  return ReplyBytes{std::move(slice), bytes};
}

ChangeOrder::Reply ReplyOver(const ReplyBytes& bytes) {
  const auto size = std::ssize(bytes.bytes);
  grpc::Slice slice = SliceOver(bytes.bytes.data(), size, bytes.owner);
  return std::make_shared<const grpc::ByteBuffer>(&slice, 1);
}

}  // namespace convgrad
