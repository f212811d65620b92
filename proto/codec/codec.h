// These functions convert between the wire's messages and the core's types. All
// validation of untrusted bytes happens here and in the core functions called
// here. Decoded values are safe to size, route and plan.
//
// Thread-safe: free functions without state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"
#include "convgrad/v1/operation.pb.h"
#include "convgrad/v1/service.pb.h"
#include "google/protobuf/descriptor.h"
#include "proto/codec/kept_tensors.h"
#include "proto/codec/tensor_source.h"
#include "proto/region_places.h"

namespace convgrad {

// The caller's options beside the operation.
struct CallOptions {
  std::string backend;  // "" is auto, otherwise a backend's name
  bool deterministic = true;
  std::string request_id;  // empty or 16 bytes
  bool self_check = false;
  bool count_nonfinite = false;
};

struct DecodedOperation {
  // Validated; contains all operands of the request (see DropUnneeded).
  ConvOperation operation;
  // Indexed by Operand.
  std::array<TensorSource, kOperandCount> sources;
  // Destinations of results that aren't in the message, with an entry in both
  // vectors for each result. A region's range is validated like a source's and
  // overlaps no other tensor. The names of kept results are unchecked.
  std::vector<std::optional<RegionRange>> result_regions;
  std::vector<std::optional<KeptResult>> kept_results;
  // OK, or kUnimplemented if the request uses a source, destination or store
  // that this version doesn't support. A separate member, because limits must
  // be checked first.
  absl::Status support;
};

// Returns an error if `message`, or any message in it, contains an unknown
// field with a number from 1 to 99.
// Errors: kUnimplemented naming the message and the number.
absl::Status CheckCriticalFields(const google::protobuf::Message& message);

// Returns the core's operation. Checks enums, then shapes, then byte counts,
// each over the whole request. `payload_bytes` are the sizes of the request's
// payloads, in order; a stream's header has none.
// Errors: kInvalidArgument naming field ("operation.operands.weight.dims"),
// found and expected.
absl::StatusOr<DecodedOperation> DecodeOperation(
    const v1::ConvOperation& message, Direction direction,
    absl::Span<const int64_t> payload_bytes,
    Carrier carrier = Carrier::kMessage);

// Returns the name of an enum value without its type's prefix, e.g. "F32" for
// DATA_TYPE_F32; "" for an unknown number.
std::string ShortName(const google::protobuf::EnumDescriptor& type, int number);

// Returns the backend names that a client may request: "auto", then the
// backends in BackendChoice, in its order.
std::vector<std::string> BackendNames();

// Returns the core's options.
// Errors: kInvalidArgument.
absl::StatusOr<CallOptions> DecodeOptions(const v1::Options& message);

// Returns the message for `operation`. Tensors outside `regions` are inline:
// the i-th inline operand, in Operand's order, gets payload i. All fields are
// explicit: pads, output dims, result dtypes and layouts. Requires:
// Validate(operation).ok().
v1::ConvOperation EncodeOperation(const ConvOperation& operation,
                                  const RegionPlaces& regions = {});
// Returns the message. Requires: options.backend is "" or a name in
// BackendChoice.
v1::Options EncodeOptions(const CallOptions& options);

// Returns `tensor` as a message without a source.
v1::Tensor EncodeDescriptor(const TensorDescriptor& tensor);

// Return `tensor` as a message whose bytes are payload `payload_index` or lie
// in a region.
v1::Tensor EncodeTensor(const TensorDescriptor& tensor, int payload_index);
v1::Tensor EncodeTensor(const TensorDescriptor& tensor,
                        const RegionRange& range);

// Returns the range in a source or a destination, unchecked.
template <typename Message>
RegionRange DecodeRegion(const Message& message) {
  return {message.region_id(), message.byte_offset(), message.byte_length()};
}

// Returns the descriptor in `message`. `groups` is the problem's; `role` names
// the field in errors.
// Errors: kInvalidArgument.
absl::StatusOr<TensorDescriptor> DecodeTensor(const v1::Tensor& message,
                                              int64_t groups,
                                              absl::string_view role);

v1::Operand EncodeOperand(Operand which);
// Returns nullopt for OPERAND_UNSPECIFIED and unknown values.
std::optional<Operand> DecodeOperand(v1::Operand which);
v1::Result EncodeResult(Result which);
// Returns nullopt for RESULT_UNSPECIFIED and unknown values.
std::optional<Result> DecodeResult(v1::Result which);
v1::DataType EncodeDataType(DataType dtype);
v1::Layout EncodeLayout(Layout layout);

}  // namespace convgrad
