// These functions decode the messages of kept tensors. All validation of
// untrusted numbers happens here.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/tensor_descriptor.h"
#include "convgrad/v1/session.pb.h"
#include "proto/codec/tensor_source.h"

namespace convgrad {

// Limit on the tensors in one call.
inline constexpr int kMaxNamedTensors = 4096;
// Checks the number of tensors in the list `field`.
// Errors: kInvalidArgument.
absl::Status CheckCount(int tensors, absl::string_view field);

// One tensor of a PutTensorsRequest. Value type.
struct DecodedPut {
  std::string name;  // unchecked
  // nullopt for a tensor without a source, which only the digest identifies.
  std::optional<TensorDescriptor> descriptor;
  TensorSource source;  // never kept
  bool is_streamed = false;
  std::string digest;  // "" or 32 bytes
};

// Returns the decoded tensors, whose bytes `carrier` brings. `payload_bytes`
// are the sizes of the request's payloads; a tensor must name each payload.
// Errors: kInvalidArgument naming field ("tensors[3].tensor.dims"), found and
// expected; kUnimplemented for unsupported sources.
absl::StatusOr<std::vector<DecodedPut>> DecodePuts(
    const v1::PutTensorsRequest& request,
    absl::Span<const int64_t> payload_bytes,
    Carrier carrier = Carrier::kMessage);

// Does the same for the first message of a stream.
// Errors: as DecodePuts.
absl::StatusOr<std::vector<DecodedPut>> DecodePutHeader(
    const v1::PutTensorsStreamRequest& message,
    absl::Span<const int64_t> payload_bytes);

// Checks that a later message of the stream has the `expected` frame, with a
// payload of `bytes`.
// Errors: kInvalidArgument.
absl::Status CheckPutFrame(const v1::PutTensorsStreamRequest& message,
                           absl::Span<const int64_t> payload_bytes,
                           const v1::TensorFrame& expected, int64_t bytes);

// A request for a kept tensor. Value type.
struct WantedTensor {
  // The tensor that is brought to `descriptor`: the kept one, or a slice of it
  // that begins at this byte.
  TensorDescriptor source;
  int64_t first_byte = 0;
  TensorDescriptor descriptor;
};

// Returns the decoded request for a tensor that is kept as `kept`. `path` names
// it in errors.
// Errors: kInvalidArgument.
absl::StatusOr<WantedTensor> DecodeWanted(const v1::NamedGet& wanted,
                                          const TensorDescriptor& kept,
                                          const std::string& path);

}  // namespace convgrad
