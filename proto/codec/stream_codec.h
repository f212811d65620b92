// These functions convert between the messages of a stream and the core's
// types.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/service.pb.h"
#include "proto/codec/codec.h"
#include "proto/stream_slices.h"

namespace convgrad {

// The content of a stream's header.
struct StreamOpening {
  DecodedOperation decoded;
  CallOptions options;
  int64_t slice_items = 0;
};

// Returns the header in a stream's first message, whose payloads have
// `payload_bytes`. Checks its operation as DecodeOperation does.
// Errors: kInvalidArgument.
absl::StatusOr<StreamOpening> DecodeOpening(
    const v1::ConvStreamRequest& message, Direction direction,
    absl::Span<const int64_t> payload_bytes);

// The bytes that a frame carries.
struct OperandPiece {
  Operand which;
  ByteRange bytes;
};

// Returns the bytes of a later message: at most kMaxFrameBytes, within an
// operand of `operation`.
// Errors: kInvalidArgument.
absl::StatusOr<OperandPiece> DecodeFrame(
    const v1::ConvStreamRequest& message, const ConvOperation& operation,
    absl::Span<const int64_t> payload_bytes);

v1::ConvStreamRequest EncodeOpening(const ConvOperation& operation,
                                    const CallOptions& options,
                                    int64_t slice_items);
v1::ConvStreamRequest EncodeFrame(Operand which, int64_t byte_offset);
v1::ConvStreamResponse EncodeFrame(Result which, int64_t byte_offset);

// Returns `tensor` as a message whose bytes arrive in frames.
v1::Tensor EncodeStreamTensor(const TensorDescriptor& tensor);

}  // namespace convgrad
