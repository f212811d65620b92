// A response as gRPC received it, taken apart into protobuf's part and
// payloads.
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
  // Copies all size() bytes to `destination` and lets go of the slices while it
  // does so. The payload is empty afterwards.
  void MoveTo(std::byte* destination);

 private:
  ReceivedSlices pieces_;
  size_t size_;
};

struct Reply {
  // Every field but `payloads`, as the message has them.
  std::string head;
  std::vector<ReceivedPayload> payloads;
};

// Takes the message apart and empties `*message`. Bytes that are no protobuf
// message are all in the head, which nobody will be able to parse.
Reply SplitReply(grpc::ByteBuffer* message);

}  // namespace convgrad
