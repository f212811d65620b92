// What has to be done for an operation, as a list of steps on named tensors.
// The list knows no library: each backend translates it step by step, and
// decides for itself which copies, layouts and dtypes a step takes.
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
    kMaskedGradient,  // what MaskStep writes
  };
  TensorDescriptor descriptor;
  Home home = Home::kOperand;
  int index = 0;
};

// Writes `gradient` where `output` > 0, and 0 elsewhere: a select.
struct MaskStep {
  StepTensor gradient, output, masked;
};

// What is done to the sums of a pass, in f32 and in this order, before they are
// rounded once.
struct Epilogue {
  std::optional<StepTensor> bias;  // of the output's rank, row-major
  std::optional<StepTensor> residual;
  bool relu = false;
  float scale = 1;

  // Whether it needs sums that weren't rounded; a ReLU alone doesn't.
  bool needs_sums() const { return bias || residual || scale != 1; }
};

// Computes a pass of the ordinary problem that Lowering makes. The tensor whose
// role is ResultOf(pass) is the result, the others are read.
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

// Writes `scale` * the sums of `gradient` over the axes along which `bias`, of
// the gradient's rank and row-major, has extent 1.
struct BiasSumStep {
  StepTensor gradient, bias;
  float scale = 1;
};

// Writes zeros: the sums over a batch of 0.
struct ZeroStep {
  StepTensor result;
};

using ConvStep =
    std::variant<MaskStep, CopyStep, PassStep, BiasSumStep, ZeroStep>;

// Returns the steps that give all results of `operation`: the mask, copies of
// the gradient, passes in the order of the results, and the sum for the bias.
// Requires: Validate(operation).ok().
std::vector<ConvStep> StepsOf(const ConvOperation& operation);

// Returns whether a step's bias is one number per channel of the output.
bool IsPerChannel(const ConvProblem& problem, const StepTensor& bias);

}  // namespace convgrad
