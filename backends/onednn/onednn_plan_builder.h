// Puts an operation's steps together: which tensor feeds which side of the
// lowered problem, in which layout, and what happens to each result.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/lowering.h"
#include "backends/core/physical_layout.h"
#include "backends/kernels/f16_depthwise.h"
#include "backends/kernels/reorder.h"
#include "backends/kernels/stride_gather.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_elementwise.h"
#include "backends/onednn/onednn_program.h"

namespace convgrad::onednn {

// Used once, by one thread. The operation and the preference must outlive it.
class PlanBuilder {
 public:
  PlanBuilder(const ConvOperation& operation, const ComputeOptions& options,
              const FormatPreference& preference);

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
  // Which part of the lowered problem a tensor plays.
  enum class Role { kData, kOut, kWeight };
  struct Side {
    Role role;
    Tensor tensor;
  };
  // Where a pass writes, and what is left to do then.
  struct Sink {
    Tensor sum;     // what the pass writes
    Tensor result;  // the caller's
    bool is_whole;  // no epilogue: sum is result
  };
  // The tensors of a pass: it writes the one that is its result and reads the
  // others; `bias` likewise, if there is a dtype for it.
  struct PassTensors {
    Tensor data, weight, out;
    std::optional<DataType> bias_dtype;
    Location bias;
  };

  // A result that a pass computes, with what is done to it after.
  struct Convolution {
    Pass pass;
    PassTensors tensors;
    Sink sink;
    Epilogue epilogue;
    Location bias, residual;  // the epilogue's
  };

  Convolution PrepareForward(size_t index);
  Convolution PrepareGradInput(size_t index);
  Convolution PrepareGradWeight(size_t index);
  absl::Status AddConvolutions(std::vector<Convolution> convolutions);
  absl::Status AddConvolution(Convolution convolution,
                              const ChosenPass& chosen);
  void AddGradResidual(size_t index);

  // Masks grad_output where a ReLU is fused.
  void PrepareGradient();
  Tensor OperandTensor(Operand operand) const;
  Tensor ResultTensor(size_t index) const;
  Sink MakeSink(size_t index, bool needs_epilogue);
  void FinishSink(const Convolution& convolution);

  // onednn_plan_bias.cc.
  // Whether the library can add the bias / sum its gradient itself. (The latter
  // is still left to us where that is faster: see FuseGradBias.)
  bool FusesBias() const;
  bool FusesGradBias() const;
  // Returns the bias in f32, one number per channel if `per_channel`.
  Location AddBias(bool per_channel);
  // Has the pass of the weight's gradient sum the bias's, too, if it should.
  absl::Status FuseGradBias(const PassSpec& spec, Candidate* chosen,
                            PassTensors* tensors);
  // Sums it after all passes, unless one of them did.
  void AddGradBias();

  // onednn_plan_depthwise.cc: depthwise passes of f16 where the library would
  // have to compute in f32.
  std::optional<F16Depthwise> F16DepthwiseOf() const;
  void AddF16Depthwise(const F16Depthwise& depthwise,
                       const std::vector<Convolution>& convolutions);
  void AddF16DepthwiseForward(
      const std::shared_ptr<const F16Depthwise>& depthwise,
      const Convolution& conv);
  // Both gradients at once, or one: the other is null.
  void AddF16DepthwiseBackward(
      const std::shared_ptr<const F16Depthwise>& depthwise,
      const Convolution* data_pass, const Convolution* weight_pass);
  void AddF16DepthwiseBias(Location sums);
  // Returns `tensor`, or place for it in a layout that F16Depthwise knows.
  Tensor RowMajor(const Tensor& tensor);
  // Return such a copy, filled.
  Tensor ReadRowMajor(const Tensor& tensor);
  Tensor ReadKernelFirst(const Tensor& weight);
  // Nothing if `to` is `from`.
  void AddMove(const Tensor& from, const Tensor& to);

  // onednn_plan_passes.cc: one pass.
  PassSpec SpecOf(Pass pass, const PassTensors& tensors, bool shares) const;
  absl::Status AddPass(Pass pass, const PassTensors& tensors,
                       const Candidate& chosen);
  StridedView ViewOf(Role role, const TensorDescriptor& tensor) const;
  dnnl::memory::desc DescOf(Role role, const StridedView& view) const;
  bool Crops(Role role) const;
  void AddZero(Location location, int64_t bytes);
  // Zeroes the taps of a weight gradient that no data reaches.
  void AddZeroDeadTaps(const Tensor& gradient);

  // onednn_plan_extracts.cc: to and from what a pass has of a tensor.
  // What the lowered problem has of a tensor of the caller.
  struct Extract {
    PhysicalLayout layout;
    Location location;
  };
  // The layout and dtype that a pass wants a tensor in.
  struct Form {
    PhysicalLayout layout;
    DataType dtype;
  };
  // Requires: a row-major tensor if its role crops it.
  Extract ExtractOf(const Side& side) const;
  // Whether the role crops nothing but what lies between the elements, and
  // after the last one as much.
  bool HasStepsOnly(const Side& side) const;
  // Null if there is a better way.
  std::shared_ptr<const StrideGather> StrideGatherOf(const Side& side) const;
  // Allocates what the role has of a tensor, dense, in its layout and dtype.
  Extract AllocateDense(const Side& side);
  // Brings what the role has of the caller's tensor to where the pass reads it.
  // Requires: as ExtractOf.
  void AddRead(const Side& side, const Form& to, Location destination);
  // Brings what a pass wrote to the caller's tensor, zeros where the role
  // leaves elements out. Requires: as ExtractOf.
  void AddWrite(Form from, Location source, const Side& side);

  // onednn_plan_copies.cc: between the caller's tensors and the layouts that a
  // pass wants.
  // Returns where a tensor lies in the layout `wanted`, reordering it if it
  // must; a copy made once serves every pass.
  Location Read(const Side& side, const dnnl::memory::desc& wanted);
  // Likewise, of the weight, which one pass reads: its copy is what the plan
  // calls prepared.
  Location ReadWeight(const Tensor& weight, const dnnl::memory::desc& wanted);
  // Returns where the primitive shall write a result in the layout `wanted`,
  // and in `finish` what brings it to the caller's tensor afterwards.
  Location Write(const Side& side, const dnnl::memory::desc& wanted,
                 std::function<void()>* finish);
  // Returns the layout behind `desc` if it is one that Reorder reaches without
  // a detour: what the role has of the tensor, dense or with channels in
  // blocks.
  std::optional<PhysicalLayout> KnownLayout(
      Role role, const TensorDescriptor& tensor,
      const dnnl::memory::desc& desc) const;
  // Whether Plain makes what is wanted.
  bool IsMadePlain(const Side& side, const dnnl::memory::desc& wanted) const;
  // Whether the tensor is brought to `wanted` by core's Reorder, where that
  // knows the layout, rather than by the library.
  bool ReordersItself(const Side& side, const dnnl::memory::desc& wanted) const;
  // Returns place for what the next step makes of a tensor; of an operand,
  // callers may have made it.
  Location AllocateCopy(const Tensor& tensor, const Form& form, int64_t bytes);
  // Returns `tensor` as the library reads it where it computes in `dtype`; a
  // copy made once serves all.
  Tensor Plain(const Tensor& tensor, DataType dtype);
  // Returns `tensor` in a row-major layout and any dtype, at the least cost.
  Tensor RowMajorOf(const Tensor& tensor);
  Tensor AllocatePlain(const TensorDescriptor& tensor, DataType dtype);

  void AddReorder(const dnnl::memory::desc& from, Location source,
                  const dnnl::memory::desc& to, Location destination);
  void AddReorder(Reorder reorder, Location source, Location destination);

  struct Copy {
    Location source;
    dnnl::memory::desc desc;
    Location location;
  };

  const ConvOperation& operation_;
  const Lowering lowering_;
  const ComputeOptions options_;
  const int threads_;
  const FormatPreference& preference_;
  Tensor gradient_;  // grad_output, masked
  bool sums_bias_in_pass_ = false;
  std::vector<Copy> copies_;
  std::vector<std::pair<Location, Tensor>> plains_;
  Program program_;
  std::string implementation_;
};

}  // namespace convgrad::onednn
