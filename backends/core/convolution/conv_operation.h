// `ConvOperation` describes a convolution or its gradients: direction, problem,
// the operands' descriptors and the requested results.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/convolution/conv_problem.h"
#include "backends/core/operation.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

enum class Direction { kForward, kBackward };

// The tensors that an operation may read.
enum class Operand {
  kInput,
  kWeight,
  kBias,
  kResidual,
  kGradOutput,
  // The forward pass's output, from which the ReLU mask is computed.
  kOutput,
};
inline constexpr int kOperandCount = 6;
inline constexpr std::array<Operand, kOperandCount> kAllOperands = {
    Operand::kInput,    Operand::kWeight,     Operand::kBias,
    Operand::kResidual, Operand::kGradOutput, Operand::kOutput};

// The tensors that an operation may write.
enum class Result {
  kOutput,
  kGradInput,
  kGradWeight,
  kGradBias,
  kGradResidual,
};
inline constexpr int kResultCount = 5;
inline constexpr std::array<Result, kResultCount> kAllResults = {
    Result::kOutput, Result::kGradInput, Result::kGradWeight, Result::kGradBias,
    Result::kGradResidual};

// Return the contract's names: "input", "grad_output", "grad_weight", ...
absl::string_view NameOf(Direction direction);
absl::string_view NameOf(Operand operand);
absl::string_view NameOf(Result result);

// A requested result: which one, and how it is stored.
struct ResultRequest {
  Result which = Result::kOutput;
  TensorDescriptor descriptor;
  // Finite. Multiplied in f32 after the forward pass's ReLU and before the
  // single rounding.
  float scale = 1;
};

// Value type. In a backward operation problem.bias is the shape of the
// requested bias gradient (absent if none is requested), and problem.residual
// is false.
struct ConvOperation final : Operation {
  Direction direction = Direction::kForward;
  ConvProblem problem;
  // Indexed by Operand; absent if the request has no such operand.
  std::array<std::optional<TensorDescriptor>, kOperandCount> operands;
  std::vector<ResultRequest> results;

  const std::optional<TensorDescriptor>& operand(Operand which) const {
    return operands[static_cast<size_t>(which)];
  }
  std::optional<TensorDescriptor>& operand(Operand which) {
    return operands[static_cast<size_t>(which)];
  }
  // Returns the request for `which`, nullptr if it isn't requested.
  const ResultRequest* result(Result which) const;

  absl::string_view name() const override { return NameOf(direction); }
  std::string text() const override;
  DataType dtype() const override;
  // Sum over all requested passes.
  int64_t flops() const override;
  double nominal_macs() const override;
  // Operands are indexed by Operand; results have the order of `results`.
  TensorUses OperandUses() const override;
  TensorUses ResultUses() const override;
  std::vector<size_t> weight_positions() const override {
    return {static_cast<size_t>(Operand::kWeight)};
  }
  int64_t batch() const override { return problem.batch; }
  // Requires: Validate(*this).ok(), and no unneeded operand.
  std::unique_ptr<const Operation> WithBatch(int64_t items) const override;
};

// Returns the position of a convolution's operand in RunBuffers.
inline size_t PositionOf(Operand which) { return static_cast<size_t>(which); }

// Returns `operation` if it is a convolution, else null.
const ConvOperation* AsConvolution(const Operation& operation);

// Returns the operation with every operand and result that `problem` has in
// `direction`. Operands, output and the gradients of activations have `dtype`;
// the gradients of weight and bias are f32. Activations have `layout`, weights
// OIX.
ConvOperation WholeOperation(const ConvProblem& problem, Direction direction,
                             DataType dtype, Layout layout);

// Return the logical dims that the tensor must have. For the bias:
// problem.bias.
Dims DimsOf(const ConvProblem& problem, Operand operand);
Dims DimsOf(const ConvProblem& problem, Result result);

// Returns whether the operation reads `operand` (proto/single_calls.md).
bool IsNeeded(const ConvOperation& operation, Operand operand);

// Checks the problem and everything that descriptors show: missing operands,
// dims, combinations of dtypes, layouts, c0, results requested twice.
// Errors: kInvalidArgument naming field ("operands.weight.dims"), found and
// expected.
absl::Status Validate(const ConvOperation& operation);

// Removes unneeded operands, so that equal operations have equal keys.
// Requires: Validate(*operation).ok().
void DropUnneeded(ConvOperation* operation);

// Returns whether one thread computes the operation fastest, because handing it
// to another thread takes longer than the work: at most 2^18 multiply-adds a
// pass and 256 KiB of tensors.
bool IsSmall(const ConvOperation& operation);

// Returns the whole operation as one line, e.g.
// "backward conv2d_n16_... weight=f32:OIX grad_output=f32:NCX ->
// grad_input=f32:NCX". Equal operations have equal texts.
std::string ToString(const ConvOperation& operation);

}  // namespace convgrad
