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

// The gradients that a backward pass returns. Value type.
struct WantedGradients {
  std::vector<std::string> inputs;  // names of inputs, unchecked
  bool of_parameters = true;
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

// A RunProgramRequest. Value type.
struct DecodedRun {
  std::string program;
  std::vector<NamedTensor> inputs;
  std::vector<std::string> fetched;
  DataType compute_dtype = DataType::kF32;
  std::string tape;  // "": the run keeps no tape
  std::optional<WantedGradients> backward;
  // Set only together with a `backward` that computes gradients of parameters.
  std::optional<DecodedUpdate> update;
  std::optional<bool> fuse;
  std::optional<bool> fast;
  bool recompute = false;
  bool report_groups = false;
  bool averaged = false;
};

// A BackwardProgramRequest. Value type.
struct DecodedBackward {
  std::string tape;
  std::vector<NamedTensor> output_gradients;
  WantedGradients wanted;
  bool retain = false;
};

// Return the decoded request. `payload_bytes` are the sizes of the request's
// payloads; a tensor must name each payload.
// Errors: kInvalidArgument naming field ("inputs[1].tensor.dims"), found and
// expected; kUnimplemented for unsupported sources and dtypes.
absl::StatusOr<DecodedRun> DecodeRun(const v1::RunProgramRequest& message,
                                     absl::Span<const int64_t> payload_bytes);
absl::StatusOr<DecodedBackward> DecodeBackward(
    const v1::BackwardProgramRequest& message,
    absl::Span<const int64_t> payload_bytes);

// Returns the decoded request. `path` is the prefix of its fields in errors: ""
// or "update.".
// Errors: kInvalidArgument, also for numbers outside torch.optim's ranges.
absl::StatusOr<DecodedUpdate> DecodeUpdate(
    const v1::UpdateParametersRequest& message, const std::string& path);

}  // namespace convgrad
