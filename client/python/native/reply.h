// `SplitReply` splits a response that gRPC received into its protobuf head and
// its payloads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "proto/received_slices.h"

namespace convgrad {

// One payload in the slices that gRPC received. Thread-compatible.
class ReceivedPayload {
 public:
  ReceivedPayload(std::vector<grpc::Slice> pieces, size_t size)
      : pieces_(std::move(pieces)), size_(size) {}

  size_t size() const { return size_; }
  // Copies all size() bytes to `destination` and frees the slices meanwhile.
  // The payload is empty afterwards.
  void MoveTo(std::byte* destination);

 private:
  ReceivedSlices pieces_;
  size_t size_;
};

struct Reply {
  // Every field except `payloads`, in the message's order.
  std::string head;
  std::vector<ReceivedPayload> payloads;
};

// Splits the message and empties `*message`. If it isn't a protobuf message,
// the head has all its bytes, and parsing it will fail.
Reply SplitReply(grpc::ByteBuffer* message);

}  // namespace convgrad
