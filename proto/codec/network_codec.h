// Between the messages of networks' calls and the core's types. All validation
// of untrusted bytes that needs no session happens here.
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

// A tensor with the name of a program's value. Value type.
struct NamedTensor {
  std::string name;  // unchecked, but not twice in one list
  // nullopt of a kept tensor: its session knows.
  std::optional<TensorDescriptor> descriptor;
  TensorSource source;
};

// The gradients that a backward returns. Value type.
struct WantedGradients {
  std::vector<std::string> inputs;  // names of inputs; not checked yet
  bool of_parameters = true;
};

// One step of an optimizer. Value type.
struct DecodedUpdate {
  struct Group {
    std::vector<std::string> parameters;  // none twice in a step
    ParameterSettings settings;
  };
  Optimizer optimizer = Optimizer::kSgd;
  UpdateSettings settings;
  std::vector<Group> groups;
  bool keep_gradients = false;
};

// A RunProgramRequest. Value type.
struct DecodedRun {
  std::string program;
  std::vector<NamedTensor> inputs;
  std::vector<std::string> fetched;
  DataType compute_dtype = DataType::kF32;
  std::string tape;  // "": none is kept
  std::optional<WantedGradients> backward;
  // There only with a `backward` that gives gradients of parameters.
  std::optional<DecodedUpdate> update;
  std::optional<bool> fuse;
  bool recompute = false;
  bool report_groups = false;
};

// A BackwardProgramRequest. Value type.
struct DecodedBackward {
  std::string tape;
  std::vector<NamedTensor> output_gradients;
  WantedGradients wanted;
  bool retain = false;
};

// `payload_bytes` are the sizes of the request's payloads; each must be named.
// Errors: kInvalidArgument naming field ("inputs[1].tensor.dims"), found and
// expected; kUnimplemented for other sources and dtypes.
absl::StatusOr<DecodedRun> DecodeRun(const v1::RunProgramRequest& message,
                                     absl::Span<const int64_t> payload_bytes);
absl::StatusOr<DecodedBackward> DecodeBackward(
    const v1::BackwardProgramRequest& message,
    absl::Span<const int64_t> payload_bytes);

// `path` leads to the message's fields in errors: "", or "update.".
// Errors: kInvalidArgument, also for numbers outside torch.optim's ranges.
absl::StatusOr<DecodedUpdate> DecodeUpdate(
    const v1::UpdateParametersRequest& message, const std::string& path);

}  // namespace convgrad
