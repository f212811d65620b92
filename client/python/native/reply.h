// `SplitReply` splits a response that gRPC received into its protobuf head and
// its payloads.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "proto/message_parts.h"

namespace convgrad {

// Splits the message and empties `*message`. If it isn't a protobuf message,
// the head has all its bytes, and parsing it will fail.
MessageParts SplitReply(grpc::ByteBuffer* message);

}  // namespace convgrad
