// `ConvProblem` describes a convolution without its data. Its text names a
// test, a log line, a command line argument and, with the tensors' descriptors,
// a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

// One spatial axis. Units: elements.
struct SpatialAxis {
  int64_t in = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;  // 1: a dense kernel
  int64_t pad_begin = 0;
  int64_t pad_end = 0;
  int64_t output_padding = 0;  // transposed convolutions only
  int64_t out = 1;

  friend bool operator==(const SpatialAxis&, const SpatialAxis&) = default;
};

// Returns the stride to pass to a library: 1 if the axis has one output
// position and the stride therefore no effect. oneDNN computes wrong results
// with strides near 2^31, and cuDNN has no engines for them. Requires: not an
// axis of a transposed convolution.
int64_t MeaningfulStride(const SpatialAxis& axis);

// Value type. Axes have the order D, H, W and may be fewer: linear has none.
struct ConvProblem {
  bool transposed = false;
  int64_t batch = 1;
  int64_t in_channels = 1;   // C, of the input
  int64_t out_channels = 1;  // O, of the output
  int64_t groups = 1;
  absl::InlinedVector<SpatialAxis, 3> axes;
  // Dims of the bias; absent if there is none. () and (1) are a scalar and (O)
  // is per channel. Otherwise the bias has the output's rank, and each axis is
  // 1 or the output's extent.
  std::optional<Dims> bias;
  bool residual = false;
  bool relu = false;

  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

// How a request gives the pads; Resolve turns all of them into numbers.
enum class Padding { kExplicit, kValid, kSameUpper, kSameLower };

// Values that a request may leave to Resolve.
struct ShapeHints {
  Padding padding = Padding::kExplicit;
  // Output extents per axis, if the request has them.
  std::optional<Dims> output;
  // True if the request has output_padding. Resolve then checks it against
  // `output` instead of deriving it.
  bool has_output_padding = false;
};

// Returns `problem`, validated, with pads, output_padding and `out` of every
// axis computed (proto/single_calls.md, "Shapes").
// Errors: kInvalidArgument naming field, found and expected.
absl::StatusOr<ConvProblem> Resolve(ConvProblem problem,
                                    const ShapeHints& hints);

// Checks every rule of proto/single_calls.md that needs no data. OK implies
// that all sizes below are exact in 63 bits.
// Errors: kInvalidArgument naming field, found and expected.
absl::Status Validate(const ConvProblem& problem);

// Return logical dims. Requires: Validate(problem).ok().
Dims InputDims(const ConvProblem& problem);
Dims WeightDims(const ConvProblem& problem);
Dims OutputDims(const ConvProblem& problem);
// Returns (O), the default for a bias gradient.
Dims PerChannelBiasDims(const ConvProblem& problem);

// Returns whether `bias` is a shape the contract allows for `problem`.
bool IsBiasShape(const ConvProblem& problem, const Dims& bias);

// Returns `bias` with the output's rank, e.g. (O) as (1,O,1,1). Extent 1 means
// broadcast. Requires: IsBiasShape(problem, bias).
Dims BroadcastBiasDims(const ConvProblem& problem, const Dims& bias);

// Returns the multiply-adds of one pass, padded windows included; saturates at
// 2^63 - 1. Forward, grad_input and grad_weight need the same number.
int64_t MultiplyAdds(const ConvProblem& problem);

// Returns e.g. "conv2d_n16_c64_o64_i56x56_k3x3_p1x1_b64_relu". Omits fields
// with default values. Parse(ToString(p)) == p for every valid p.
std::string ToString(const ConvProblem& problem);

// Parses the output of ToString, and shorter forms for people: one number
// stands for all axes (k3), padding may be named (psame, psamelower, pvalid),
// "b" alone is a bias per channel. The result is resolved and validated.
// Errors: kInvalidArgument naming the token.
absl::StatusOr<ConvProblem> Parse(absl::string_view text);

}  // namespace convgrad
