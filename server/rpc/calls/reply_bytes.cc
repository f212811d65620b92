#include "server/rpc/calls/reply_bytes.h"

#include <utility>

#include "backends/core/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/codec/payload_message.h"

namespace convgrad {

absl::StatusOr<SharedBytes> BytesOfReply(const ChangeOrder::Reply& reply) {
  // DumpToSingleSlice isn't const, but leaves the buffer as it is.
  grpc::ByteBuffer buffer(*static_cast<const grpc::ByteBuffer*>(reply.get()));
  auto slice = std::make_shared<grpc::Slice>();
  if (buffer.Length() > 0 && !buffer.DumpToSingleSlice(slice.get()).ok()) {
    return Busy("reply", "no memory for its bytes", "");
  }
  const auto* data = reinterpret_cast<const std::byte*>(slice->begin());
  const auto size = static_cast<int64_t>(slice->size());
  return SharedBytes{data, size, std::move(slice)};
}

ChangeOrder::Reply ReplyOver(const SharedBytes& bytes) {
  grpc::Slice slice = SliceOver(bytes.data, bytes.size, bytes.owner);
  return std::make_shared<const grpc::ByteBuffer>(&slice, 1);
}

}  // namespace convgrad
