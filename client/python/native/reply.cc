#include "client/python/native/reply.h"

namespace convgrad {
namespace {

std::string TextOf(const grpc::ByteBuffer& message) {
  grpc::Slice bytes;
  if (!message.DumpToSingleSlice(&bytes).ok()) return "";
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

}  // namespace

MessageParts SplitReply(grpc::ByteBuffer* message) {
  // Must outlive the references below (see PayloadView).
  grpc::ByteBuffer received;
  received.Swap(message);
  absl::StatusOr<MessageParts> reply = SplitParts(received);
  return reply.ok() ? *std::move(reply) : MessageParts{TextOf(received), {}};
}

}  // namespace convgrad
