// These functions are the stages of DecodeOperation, which other requests'
// decoders use as well. Internal to the codec.
//
// Thread-safe: free functions without state.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "backends/core/convolution/conv_operation.h"
#include "backends/core/field_errors.h"
#include "convgrad/v1/operation.pb.h"
#include "proto/codec/codec.h"

namespace convgrad {

// Maximum number of dims: batch, channels and three spatial axes.
inline constexpr int kMaxDims = 5;

// Returns the tensor of `operand`, nullptr if the request has none.
const v1::Tensor* FindTensor(const v1::Operands& operands, Operand operand);
v1::Tensor* MutableTensor(v1::Operands* operands, Operand operand);

// Return e.g. "operation.operands.weight" and "operation.results[1]".
std::string OperandPath(Operand operand);
std::string ResultPath(int index);

// Returns `dims` if there are at most kMaxDims; `path` names them in errors.
// Errors: kInvalidArgument, reason OUT_OF_RANGE.
absl::StatusOr<Dims> DecodeDims(
    const google::protobuf::RepeatedField<int64_t>& dims,
    const std::string& path);

// Returns OK if `c0` is 0 or a valid block of a blocked layout.
// Errors: kInvalidArgument, reason OUT_OF_RANGE.
absl::Status CheckC0Known(int32_t c0, const std::string& path);

// Returns `range` if its size is `bytes` and its end doesn't overflow. `path`
// names it in errors.
// Errors: kInvalidArgument.
absl::StatusOr<RegionRange> CheckRange(const RegionRange& range, int64_t bytes,
                                       const std::string& path);

// Sets `*source` to the payload or the region of `tensor`, whose descriptor is
// `descriptor`. `path` names the tensor in errors. Requires: it has one of
// them. Errors: kInvalidArgument.
absl::Status DecodePlace(const v1::Tensor& tensor,
                         const TensorDescriptor& descriptor,
                         const std::string& path, NamedPayloads* payloads,
                         TensorSource* source);

// Returns OK if a message has `expected` payloads.
// Errors: kInvalidArgument, reason MALFORMED.
absl::Status CheckPayloadCount(absl::Span<const int64_t> payload_bytes,
                               size_t expected);

// Returns OK if a message of a stream has its header if `is_header`, otherwise
// a frame. Errors: kInvalidArgument, reason MALFORMED.
template <typename Message>
absl::Status CheckPart(const Message& message, bool is_header) {
  if (is_header ? message.has_header() : message.has_frame()) {
    return absl::OkStatus();
  }
  const absl::string_view other = is_header ? "frame" : "header";
  const bool is_empty = !message.has_header() && !message.has_frame();
  return Malformed("part", is_empty ? "nothing" : other,
                   absl::StrCat(is_header ? "header" : "frame",
                                ": one header first, frames after it"));
}

// Returns the problem, resolved and validated, without bias and residual.
// Fields in errors begin with "operation.problem". Requires: CheckEnums
// returned OK.
absl::StatusOr<ConvProblem> DecodeProblem(const v1::ConvProblem& message);

// Checks the tensors' sources against `decoded->operation`, and sets all other
// members of `*decoded`. Requires: Validate(decoded->operation).ok().
absl::Status DecodeBytes(const v1::ConvOperation& message, Carrier carrier,
                         absl::Span<const int64_t> payload_bytes,
                         DecodedOperation* decoded);

}  // namespace convgrad
