// Puts an operation's steps together: which tensor feeds which side of the
// lowered problem, in which layout, and what happens to each result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/lowering.h"
#include "backends/cuda/cuda_candidates.h"
#include "backends/cuda/cuda_program.h"

namespace convgrad::cuda {

// Used once, by one thread. The operation and the planner must outlive it.
// Operands and results are at DeviceMemory's positions of ConvOperation.
class PlanBuilder {
 public:
  PlanBuilder(const ConvOperation& operation, const GraphPlanner& planner);

  // Adds the steps of all results. Errors: kUnimplemented, kInternal.
  absl::Status Build();

  Program TakeProgram() { return std::move(program_); }
  // One "pass=engine/operands>result/format" per convolution.
  const std::string& implementation() const { return implementation_; }

 private:
  // A tensor of the caller, or a copy of one.
  struct Tensor {
    TensorDescriptor descriptor;
    Location location;
  };

  // A convolution's tensors by role: one of them is its result.
  struct Sides {
    Tensor data, weight, out;
  };

  // What happens to a convolution's result on its way to the caller's tensor.
  struct Finish {
    std::optional<Tensor> bias, residual;
    bool relu = false;
    float scale = 1;

    bool is_sum() const { return bias || residual || scale != 1; }
  };

  struct GraphLocations {
    Location data, weight, out, bias, workspace;
  };

  absl::Status AddForward(size_t index);
  absl::Status AddGradient(size_t index);
  void AddGradBias(size_t index);
  void AddGradResidual(size_t index);

  // Masks grad_output where a ReLU is fused.
  void PrepareGradient();
  // Computes the request at `index`, whose side is filled in here.
  absl::Status AddConvolution(size_t index, const Sides& sides, Finish finish);
  // Takes the bias out of `finish` if cuDNN adds it.
  absl::StatusOr<Candidate> Choose(PassSpec spec, Finish* finish,
                                   std::optional<Tensor>* fused_bias) const;
  void AddGraph(Candidate candidate, const GraphLocations& at);

  Tensor OperandTensor(Operand operand) const;
  Tensor ResultTensor(size_t index) const;
  Tensor Allocate(const TensorDescriptor& descriptor);
  MappedTensor Mapped(const TensorDescriptor& descriptor) const;
  // Returns the tensor's part that the lowered problem sees. Requires: a
  // row-major layout.
  MappedTensor ViewOf(Role role, const TensorDescriptor& tensor) const;
  // Returns where the candidate finds an operand, copying it if it must.
  Location Read(const Candidate& candidate, Role role, Tensor tensor);
  // Returns the bias in f32.
  Location InFloat(const Tensor& bias);
  // Writes all of `to`.
  void AddElementwise(const MappedTensor& from, Location source,
                      const MappedTensor& to, Location destination,
                      const Finish& finish);

  const ConvOperation& operation_;
  const Lowering lowering_;
  const GraphPlanner& planner_;
  Tensor gradient_;  // grad_output, masked
  Program program_;
  std::string implementation_;
};

}  // namespace convgrad::cuda
