// These functions convert enums between wire and core, and validate a request's
// enums, which is the first stage of its checks. Internal to the codec.
//
// Thread-safe: free functions without state.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/tensor_descriptor.h"
#include "convgrad/v1/operation.pb.h"
#include "google/protobuf/message.h"

namespace convgrad {

// Return nullopt for UNSPECIFIED and unknown values.
std::optional<DataType> DecodeDataType(v1::DataType dtype);
std::optional<Layout> DecodeLayout(v1::Layout layout);

// Returns kExplicit for UNSPECIFIED. Requires: a known value.
Padding DecodePadding(v1::Padding padding);

// Returns an error if an enum field of `message`, or of any message in it, has
// an unknown number. Errors prefix the field's name with `path`.
// Errors: kInvalidArgument, reason INVALID_ENUM.
absl::Status CheckKnownEnums(const google::protobuf::Message& message,
                             const std::string& path);

// Checks that all enums of an operation are known, and set if required.
// Errors: kInvalidArgument, reason INVALID_ENUM, with fields that begin with
// "operation.".
absl::Status CheckEnums(const v1::ConvOperation& operation);

// Returns an error for an unset dtype or layout. `path` names the tensor.
absl::Status CheckTensorEnumsGiven(const v1::Tensor& tensor, bool is_bias,
                                   const std::string& path);

}  // namespace convgrad
