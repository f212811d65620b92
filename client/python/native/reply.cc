#include "client/python/native/reply.h"

namespace convgrad {
namespace {

std::string TextOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!message.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
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
