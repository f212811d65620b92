// Implements a convolution at inference, fused with the batch_norm of running
// statistics, the add and the activation after it: by Winograd's algorithm or
// by the library.
#include <string>
#include <utility>

#include "backends/core/program/operators/convolution.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/schedule/network_ranges.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_epilogue.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_sequence.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_taps.h"
#include "backends/onednn/networks/steps/convolutions/network_folded_norm.h"
#include "backends/onednn/networks/steps/convolutions/network_library_fusion.h"
#include "backends/onednn/networks/steps/convolutions/network_padded_images.h"
#include "backends/onednn/networks/steps/convolutions/network_winograd.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class FusedConvolution final : public NetworkGroup {
 public:
  FusedConvolution(const convgrad::Program& program,
                   const ProgramShapes& shapes, const GroupSteps& steps,
                   std::vector<std::unique_ptr<NetworkGroup>> others)
      : program_(program),
        others_(std::move(others)),
        steps_(steps),
        convolution_(program.steps[steps.convolution]),
        problem_(ProblemOf(convolution_, shapes)) {
    const ProgramStep& first = program.steps[steps.first];
    if (first.op == Operator::kBatchNorm) norm_ = &first;
    const size_t add = first.op == Operator::kAdd ? steps.first : steps.add;
    if (add != GroupSteps::kNone) addend_ = AddendOf(program.steps[add]);
    const size_t activation =
        EndsConvolution(first.op) ? steps.first : steps.activation;
    if (activation == GroupSteps::kNone) return;
    activated_ = program.steps[activation].operands[0];
    activation_ = ActivationOf(program.steps[activation]);
  }

  void Forward(NetworkBuilder* builder) override {
    if (!IsOurs(builder) && (AddFast(builder) || AddFused(builder))) {
      return;
    }
    MakeConvolution(convolution_)->Forward(builder);
    for (const auto& other : others_) other->Forward(builder);
  }

  void Backward(NetworkBuilder* builder) override {
    builder->schedule().Fail(
        absl::InternalError("a fused convolution has no backward"));
  }

 private:
  // Returns the operand of an add that isn't the result of the convolution or
  // of its batch_norm.
  std::string AddendOf(const ProgramStep& add) const {
    const std::string& own =
        norm_ != nullptr ? norm_->result : convolution_.result;
    return add.operands[add.operands[0] == own ? 1 : 0];
  }

  bool is_capped() const {
    return activation_.activation == Activation::kRelu6;
  }
  const std::string& x() const { return convolution_.operands[0]; }
  // Returns "" if there is none.
  std::string bias() const { return OperandAt(convolution_, 2); }
  const std::string& result() const {
    return program_.steps[steps_.last()].result;
  }
  // Returns whether kernels of ours compute the convolution alone faster.
  bool IsOurs(NetworkBuilder* builder) const {
    FastPass pass = PassOf(*builder);
    pass.x.blocks.dtype = pass.y.blocks.dtype = Native(*builder);
    if (IsFastAsSequence(pass)) return true;
    return IsFastByTaps(pass, IsFast(*builder),
                        builder->schedule().steps().size());
  }
  DataType Native(const NetworkBuilder& builder) const {
    const NetworkTensor y = builder.Like(convolution_.result);
    if (PadsImages(problem_, y, builder)) return DataType::kBF16;
    return ConvolutionDtype(problem_, false, {Pass::kForward},
                            builder.Like(x(), Form::kImage), y, builder);
  }
  // Returns the pass without its buffers.
  FastPass PassOf(const NetworkBuilder& builder) const {
    return {Pass::kForward, problem_, builder.Like(x(), Form::kImage),
            builder.Like(result())};
  }
  bool IsFast(const NetworkBuilder& builder) const {
    return builder.operation().request().fast &&
           IsFastByWinograd(PassOf(builder));
  }

  // Appends the fused step by Winograd's algorithm, if that is allowed and
  // faster. Returns whether it is. The plan repeats the run without fusion if
  // the algorithm can't compute the step.
  bool AddFast(NetworkBuilder* builder) const {
    if (!IsFast(*builder)) return false;
    FastPass pass = PassOf(*builder);
    if (is_capped() && !AddRangeCheckOn(activated_, builder)) return false;
    pass.x = builder->Value(x());
    pass.weight = builder->Parameter(convolution_.operands[1]);
    pass.bias = builder->Parameter(bias());
    if (norm_ != nullptr) {
      const FoldedNorm norm = AddFoldedNorm(*norm_, bias(), builder);
      pass.scales = norm.scale;
      pass.bias = norm.shift;
    }
    if (!addend_.empty()) pass.addend = builder->Value(addend_).buffer;
    pass.function = activation_;
    pass.y = builder->AddValue(result());
    builder->MarkFast(convolution_.result);
    builder->RepeatIf(AddWinograd(pass, "conv forward", builder));
    builder->SetMayRepeat();
    return true;
  }

  // Appends the fused step by the library, if it has a fast implementation.
  // Returns whether it has one.
  bool AddFused(NetworkBuilder* builder) const {
    const LibraryFusion fusion(
        {convolution_, problem_, norm_, addend_, activation_, result()});
    const DataType native = Native(*builder);
    auto way = fusion.WayIn(native, builder);
    if (!way && native != DataType::kF32) {
      way = fusion.WayIn(DataType::kF32, builder);
    }
    if (!way || (is_capped() && !AddRangeCheckOn(activated_, builder))) {
      return false;
    }
    fusion.Append(*way, builder);
    builder->SetMayRepeat();
    return true;
  }

  // Returns false if `value` has no known bound.
  static bool AddRangeCheckOn(const std::string& value,
                              NetworkBuilder* builder) {
    const BufferId range = RangeOf(value, builder);
    if (range == kNoBuffer) return false;
    builder->RepeatIf(AddRangeCheck(range, &builder->schedule()));
    return true;
  }

  const convgrad::Program& program_;
  // The other steps, used if the library has no fast implementation.
  const std::vector<std::unique_ptr<NetworkGroup>> others_;
  const GroupSteps steps_;
  const ProgramStep& convolution_;
  const ConvProblem problem_;
  const ProgramStep* norm_ = nullptr;  // null: none
  std::string addend_;                 // "": none
  Pointwise activation_ = {};
  std::string activated_;  // the activation's operand
};

}  // namespace

std::unique_ptr<NetworkGroup> MakeFusedConvolution(
    const convgrad::Program& program, const ProgramShapes& shapes,
    const GroupSteps& steps,
    std::vector<std::unique_ptr<NetworkGroup>> others) {
  return std::make_unique<FusedConvolution>(program, shapes, steps,
                                            std::move(others));
}

}  // namespace convgrad::onednn
