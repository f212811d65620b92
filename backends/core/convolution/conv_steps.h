// `StepsOf` translates an operation to a list of steps on named tensors. The
// list is independent of libraries: each backend translates it step by step,
// and chooses the copies, layouts and dtypes of each step.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "backends/core/convolution/conv_operation.h"
#include "backends/core/convolution/lowering.h"

namespace convgrad {

// A tensor that steps read or write.
struct StepTensor {
  enum class Home {
    kOperand,         // the caller's operand at position `index`
    kResult,          // the caller's result at position `index`
    kMaskedGradient,  // the output of MaskStep
  };
  TensorDescriptor descriptor;
  Home home = Home::kOperand;
  int index = 0;
};

// Writes `gradient` where `output` > 0, and 0 elsewhere.
struct MaskStep {
  StepTensor gradient, output, masked;
};

// Operations on the sums of a pass, in f32 and in the order of the members,
// before the single rounding.
struct Epilogue {
  std::optional<StepTensor> bias;  // has the output's rank, row-major
  std::optional<StepTensor> residual;
  bool relu = false;
  float scale = 1;

  // Returns whether it needs unrounded sums; a ReLU alone doesn't.
  bool needs_sums() const { return bias || residual || scale != 1; }
};

// Computes a pass of the ordinary problem that Lowering returns. Writes the
// tensor with the role ResultOf(pass) and reads the others.
struct PassStep {
  Pass pass = Pass::kForward;
  StepTensor data, weight, out;
  Epilogue epilogue;

  const StepTensor& tensor(Role role) const {
    return role == Role::kData ? data : role == Role::kWeight ? weight : out;
  }
  const StepTensor& result() const { return tensor(ResultOf(pass)); }
};

// Writes `scale` * `from`, rounded once.
struct CopyStep {
  StepTensor from, to;
  float scale = 1;
};

// Writes `scale` * the sums of `gradient` over the axes along which `bias` has
// extent 1. `bias` has the gradient's rank and is row-major.
struct BiasSumStep {
  StepTensor gradient, bias;
  float scale = 1;
};

using ConvStep = std::variant<MaskStep, CopyStep, PassStep, BiasSumStep>;

// Returns the steps that compute all results of `operation`, in execution
// order: the mask, copies of the gradient, the passes, and the bias sums.
// Requires: Validate(operation).ok(); a batch of at least 1.
std::vector<ConvStep> StepsOf(const ConvOperation& operation);

// Returns whether a step's bias has one number per output channel.
bool IsPerChannel(const ConvProblem& problem, const StepTensor& bias);

}  // namespace convgrad
