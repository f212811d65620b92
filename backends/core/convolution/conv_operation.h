// A convolution or its gradients: direction, problem, the operands' descriptors
// and the results wanted.
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

enum class Operand {
  kInput,
  kWeight,
  kBias,
  kResidual,
  kGradOutput,
  kOutput,  // of the forward pass: what the ReLU mask is taken from
};
inline constexpr int kOperandCount = 6;
inline constexpr std::array<Operand, kOperandCount> kAllOperands = {
    Operand::kInput,    Operand::kWeight,     Operand::kBias,
    Operand::kResidual, Operand::kGradOutput, Operand::kOutput};

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

struct ResultRequest {
  Result which = Result::kOutput;
  TensorDescriptor descriptor;
  // Finite; multiplied in f32 after the forward's ReLU, before the one
  // rounding.
  float scale = 1;
};

// Value type. In a backward operation problem.bias is the shape of the bias
// gradient asked for (absent if none is), and problem.residual is false.
struct ConvOperation final : Operation {
  Direction direction = Direction::kForward;
  ConvProblem problem;
  // Indexed by Operand; absent where the request has none.
  std::array<std::optional<TensorDescriptor>, kOperandCount> operands;
  std::vector<ResultRequest> results;

  const std::optional<TensorDescriptor>& operand(Operand which) const {
    return operands[static_cast<size_t>(which)];
  }
  std::optional<TensorDescriptor>& operand(Operand which) {
    return operands[static_cast<size_t>(which)];
  }
  // Returns the request for `which`, nullptr if it isn't asked for.
  const ResultRequest* result(Result which) const;

  absl::string_view name() const override { return NameOf(direction); }
  std::string text() const override;
  DataType dtype() const override;
  // Those of all passes asked for.
  int64_t flops() const override;
  double nominal_macs() const override;
  // By Operand, and in the order of `results`.
  TensorUses OperandUses() const override;
  TensorUses ResultUses() const override;
  std::vector<size_t> weight_positions() const override {
    return {static_cast<size_t>(Operand::kWeight)};
  }
  int64_t batch() const override { return problem.batch; }
  // Requires: Validate(*this).ok(), no operand that isn't needed.
  std::unique_ptr<const Operation> WithBatch(int64_t items) const override;
};

// Returns the position in RunBuffers of a convolution's operand.
inline size_t PositionOf(Operand which) { return static_cast<size_t>(which); }

// Returns `operation` if it is a convolution, else null.
const ConvOperation* AsConvolution(const Operation& operation);

// Returns the operation with every operand and result that `problem` has in
// `direction`: operands, output and the gradients of activations in `dtype`,
// those of weight and bias in f32; activations in `layout`, weights in OIX.
ConvOperation WholeOperation(const ConvProblem& problem, Direction direction,
                             DataType dtype, Layout layout);

// Returns the logical dims that `operand` must have. For the bias:
// problem.bias.
Dims DimsOf(const ConvProblem& problem, Operand operand);
Dims DimsOf(const ConvProblem& problem, Result result);

// Returns whether the operation reads `operand` (proto/single_calls.md).
bool IsNeeded(const ConvOperation& operation, Operand operand);

// Checks the problem and everything that descriptors can show: operands
// missing, dims, dtypes that may not meet, layouts, c0, results asked for
// twice. Errors: kInvalidArgument naming field ("operands.weight.dims"), found
// and expected.
absl::Status Validate(const ConvOperation& operation);

// Drops the operands that aren't needed, so that equal work has equal keys.
// Requires: Validate(*operation).ok().
void DropUnneeded(ConvOperation* operation);

// Whether the operation is so small that one thread does it best, and handing
// it to another takes longer than the work: at most 2^18 multiply-adds a pass
// and 256 KiB of tensors.
bool IsSmall(const ConvOperation& operation);

// Returns the whole operation as one line, e.g.
// "backward conv2d_n16_... weight=f32:OIX grad_output=f32:NCX ->
// grad_input=f32:NCX". Equal operations have equal texts.
std::string ToString(const ConvOperation& operation);

// Returns `operation` on `items` items of its batch, as Operation::WithBatch.
ConvOperation WithBatch(const ConvOperation& operation, int64_t items);

}  // namespace convgrad
