// The wire's enums and the core's, and the first stage of a request's checks.
// Internal to the codec.
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

// Refuses numbers that an enum field of `message`, or of any message in it,
// doesn't name. `path` is put before the fields' names in errors.
// Errors: kInvalidArgument, reason INVALID_ENUM.
absl::Status CheckKnownEnums(const google::protobuf::Message& message,
                             const std::string& path);

// Checks all enums of an operation: known, and given where needed.
// Errors: kInvalidArgument, reason INVALID_ENUM, fields from "operation." on.
absl::Status CheckEnums(const v1::ConvOperation& operation);

// Refuses a dtype or layout that is unset. `path` names the tensor.
absl::Status CheckTensorEnumsGiven(const v1::Tensor& tensor, bool is_bias,
                                   const std::string& path);

}  // namespace convgrad
