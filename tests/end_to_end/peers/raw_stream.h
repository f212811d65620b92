// `RawStream` sends a stream message by message, with gRPC's generated stubs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

// The end of a stream.
struct StreamOutcome {
  grpc::Status status;
  Trailers trailers;
  int frames = 0;
  bool ended = false;  // A StreamEnd arrived.
};

// A ConvBackwardStream. Not thread-safe.
class RawStream {
 public:
  explicit RawStream(v1::ConvGrad::Stub& stub,
                     absl::Duration timeout = absl::Seconds(60));

  // Returns false if the stream has ended.
  bool Write(const v1::ConvStreamRequest& message) {
    return stream_->Write(message);
  }
  bool Read(v1::ConvStreamResponse* message) { return stream_->Read(message); }
  void Cancel() { context_.TryCancel(); }
  // Half-closes, reads all messages, and returns the end of the stream.
  StreamOutcome Finish();
  // As Finish, without a half-close.
  StreamOutcome AwaitEnd();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ConvStreamRequest, v1::ConvStreamResponse>>
      stream_;
};

// Returns the header of the tests' operation: conv2d_n6_c2_o3_i5_k3 with all
// gradients of f32, in slices of 2. Its bytes: input 1200, 400 a slice;
// grad_output 648, 216 a slice; weight 216.
v1::ConvStreamRequest TestHeader();
v1::ConvStreamRequest TestFrame(v1::Operand which, int64_t byte_offset,
                                int64_t bytes);
// Returns all frames of the operation, in order: one for weight, two for each
// slice.
std::vector<v1::ConvStreamRequest> TestFrames();

// Sends these messages, half-closes and reads to the end.
StreamOutcome SendAll(v1::ConvGrad::Stub& stub,
                      const std::vector<v1::ConvStreamRequest>& messages);

}  // namespace convgrad
