// These functions decode the messages of network calls. All validation of
// untrusted bytes that needs no session happens here.
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/optimizer/update_operation.h"
#include "backends/core/tensor_descriptor.h"
#include "convgrad/v1/network.pb.h"
#include "proto/codec/tensor_source.h"

namespace convgrad {

// A tensor named like a value of the program. Value type.
struct NamedTensor {
  std::string name;  // unchecked, but unique in its list
  // nullopt for a kept tensor, whose descriptor the session has.
  std::optional<TensorDescriptor> descriptor;
  TensorSource source;
};

// One step of an optimizer. Value type.
struct DecodedUpdate {
  struct Group {
    std::vector<std::string> parameters;  // unique in a step
    ParameterSettings settings;
  };
  Optimizer optimizer = Optimizer::kSgd;
  UpdateSettings settings;
  std::vector<Group> groups;
  bool keep_gradients = false;
  // The step writes averages, also of the tensors that `averaged` names.
  bool is_averaged = false;
  std::vector<std::string> averaged;  // unique in a step
};

// The fields of a RunProgramRequest that have another type in the core. Value
// type.
struct DecodedRun {
  std::vector<NamedTensor> inputs;
  DataType compute_dtype = DataType::kF32;
  // Set only together with a backward that computes gradients of parameters.
  std::optional<DecodedUpdate> update;
};

// Returns the tensors of the list `field`. `payload_bytes` are the sizes of the
// request's payloads; a tensor must name each payload.
// Errors: kInvalidArgument naming field ("inputs[1].tensor.dims"), found and
// expected; kUnimplemented for unsupported sources and dtypes.
absl::StatusOr<std::vector<NamedTensor>> DecodeTensors(
    const google::protobuf::RepeatedPtrField<v1::NamedValue>& message,
    const std::string& field, absl::Span<const int64_t> payload_bytes);
// Returns the decoded request, whose other fields go together.
// Errors: those of DecodeTensors and DecodeUpdate.
absl::StatusOr<DecodedRun> DecodeRun(const v1::RunProgramRequest& message,
                                     absl::Span<const int64_t> payload_bytes);

// Returns the decoded request. `path` is the prefix of its fields in errors: ""
// or "update.".
// Errors: kInvalidArgument, also for numbers outside torch.optim's ranges.
absl::StatusOr<DecodedUpdate> DecodeUpdate(
    const v1::UpdateParametersRequest& message, const std::string& path);

}  // namespace convgrad
