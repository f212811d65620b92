// Puts an operation's steps together: which tensor feeds which side of the
// lowered problem, in which layout, and what happens to each result.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/core/lowering.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_elementwise.h"
#include "backends/onednn/onednn_program.h"

namespace convgrad::onednn {

// Used once, by one thread. The operation must outlive it.
class PlanBuilder {
 public:
  PlanBuilder(const ConvOperation& operation, int threads);

  // Adds the steps of all results.
  // Errors: kUnimplemented, kInternal.
  absl::Status Build();

  Program TakeProgram() { return std::move(program_); }
  // One "pass:implementation:format" per convolution.
  const std::string& implementation() const { return implementation_; }

 private:
  // A tensor of the caller, or a copy of one: its descriptor and place.
  struct Tensor {
    TensorDescriptor descriptor;
    Location location;
  };
  // Where a pass writes, and what is left to do then.
  struct Sink {
    Tensor sum;     // what the library writes, in the caller's layout
    Tensor result;  // the caller's
    bool is_whole;  // no epilogue: sum is result
  };
  // A view of a tensor as the lowered problem sees it.
  struct Side {
    StridedView view;
    dnnl::memory::desc desc;
    Location location;
  };

  absl::Status AddForward(size_t index);
  absl::Status AddGradInput(size_t index);
  absl::Status AddGradWeight(size_t index);
  void AddGradBias(size_t index);
  void AddGradResidual(size_t index);

  // Masks grad_output where a ReLU is fused.
  void PrepareGradient();
  Tensor OperandTensor(Operand operand) const;
  Tensor ResultTensor(size_t index) const;
  Sink MakeSink(size_t index, bool needs_epilogue);
  void FinishSink(const Sink& sink, const Epilogue& epilogue, Location bias,
                  Location residual);

  // Whether the library can add the bias / sum its gradient itself.
  bool FusesBias() const;
  bool FusesGradBias() const;
  // Adds the f32 per-channel bias that the library wants.
  Location AddChannelBias();

  Side DataSide(const Tensor& tensor) const;
  Side OutSide(const Tensor& tensor) const;
  Side WeightSide(const Tensor& tensor) const;

  // Appends `pass`. Of `data`, `weight` and `out` the pass's result is written,
  // the others are read; `bias` likewise, if the spec has one.
  struct PassTensors {
    Side data, weight, out;
    std::optional<DataType> bias_dtype;
    Location bias;
  };
  absl::Status AddPass(Pass pass, const PassTensors& tensors);
  // Returns where `side` lies in the layout `wanted`, reordering it if it must;
  // a copy made once serves every pass.
  Location Read(const Side& side, const dnnl::memory::desc& wanted);
  void AddReorder(const dnnl::memory::desc& from, Location source,
                  const dnnl::memory::desc& to, Location destination);
  void AddZero(Location location, int64_t bytes);

  struct Copy {
    Location source;
    dnnl::memory::desc desc;
    Location location;
  };

  const ConvOperation& operation_;
  const Lowering lowering_;
  const int threads_;
  Tensor gradient_;  // grad_output, masked
  std::vector<Copy> copies_;
  Program program_;
  std::string implementation_;
};

}  // namespace convgrad::onednn
