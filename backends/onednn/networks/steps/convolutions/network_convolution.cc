// Implements convolutions by the library's primitives: forward, backward-data
// and backward-weight. Each uses the network's layout if the library has a fast
// implementation for it; otherwise it uses the library's layout, with reorders
// before and after it.
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/program/operators/convolution.h"
#include "backends/core/status.h"
#include "backends/kernels/convolutions/depthwise_gradient.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_cpu.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_bias.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_sequence.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_taps.h"
#include "backends/onednn/networks/steps/convolutions/network_padded_images.h"
#include "backends/onednn/networks/steps/convolutions/network_winograd.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Appends the backward-weight of a depthwise convolution. Requires: the filters
// have one or two axes, and the images are f32 in blocks of channels.
void AddDepthwiseGradient(const FastPass& pass, absl::string_view kind,
                          Schedule* schedule) {
  const ConvProblem& problem = pass.problem;
  const DepthwiseShape shape = {
      .batch = problem.batch,
      .channels = problem.in_channels,
      .block = pass.x.blocks.block,
      .y = problem.axes.size() > 1 ? AxisOf(problem.axes[0]) : ConvAxis(),
      .x = AxisOf(problem.axes.back())};
  const BufferId x = pass.x.buffer, dy = pass.y.buffer, dw = pass.weight;
  schedule->Add(
      kind, {x, dy}, {dw},
      [=](const RunContext& context) {
        AddUpDepthwiseGradient(shape,
                               {context.Read<float>(x), context.Read<float>(dy),
                                context.Write<float>(dw)},
                               context.parts());
      },
      static_cast<double>(MultiplyAdds(problem)));
}

class Convolution final : public NetworkGroup {
 public:
  explicit Convolution(const ProgramStep& step)
      : step_(step),
        x_(step.operands[0]),
        weight_(step.operands[1]),
        bias_(OperandAt(step, 2)) {}

  void Forward(NetworkBuilder* builder) override {
    problem_ = ProblemOf(step_, builder->shapes());
    is_mirrored_ = problem_.transposed;
    if (is_mirrored_) problem_ = MirrorOf(problem_);
    weight_desc_ = PlainWeightDesc(problem_);
    computes_in_ = ConvolutionDtype(
        problem_, is_mirrored_,
        {Pass::kForward, Pass::kBackwardData, Pass::kBackwardWeight},
        builder->Like(x_, Form::kImage), builder->Like(step_.result), *builder);
    if (PadsImages(problem_, builder->Like(step_.result), *builder)) {
      padded_.emplace(step_, problem_);
      padded_->AddForward(builder);
      return;
    }
    ReadInput(builder);
    const NetworkTensor y = builder->AddValue(step_.result);
    const bool adds_bias = is_mirrored_ && !bias_.empty();
    const NetworkTensor computed =
        ComputedIn(adds_bias ? DataType::kF32 : computes_in_, y, builder);
    const Pass pass = is_mirrored_ ? Pass::kBackwardData : Pass::kForward;
    AddPass({pass, "conv forward", builder->Parameter(bias_)},
            {Input(builder), Weight(builder), TensorOf(computed)}, builder);
    if (adds_bias) {
      AddBias(builder->Parameter(bias_), computed, builder);
    }
    AddConversion(computed, y, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor gradient = builder->GradientOf(step_.result);
    const LibraryTensor dy =
        TensorOf(Converted(gradient, computes_in_, builder));
    if (!bias_.empty()) {
      AddBiasGradient("conv backward weight", gradient,
                      builder->NewParameterGradient(bias_), builder);
    }
    if (padded_) {
      padded_->AddBackwardWeight(gradient, builder);
    } else {
      const LibraryTensor dw = {builder->NewParameterGradient(weight_),
                                weight_desc_};
      AddPass({Pass::kBackwardWeight, "conv backward weight", kNoBuffer},
              {Input(builder), dw, dy}, builder);
    }
    const NetworkTensor dx = builder->NewGradient(x_);
    const NetworkTensor computed = ComputedIn(computes_in_, dx, builder);
    const Pass pass = is_mirrored_ ? Pass::kForward : Pass::kBackwardData;
    AddPass({pass, "conv backward data", kNoBuffer},
            {TensorOf(computed), Weight(builder), dy}, builder);
    AddConversion(computed, dx, builder);
  }

 private:
  struct PassToAdd {
    Pass pass;
    absl::string_view kind;
    // Only for a forward that isn't mirrored.
    BufferId bias;
    // Whether it runs only if the fast step before it refuses its operands.
    bool is_fallback = false;
  };
  // The step's tensors, or their gradients.
  struct StepTensors {
    LibraryTensor input, weight, result;
  };

  LibraryTensor Weight(NetworkBuilder* builder) const {
    return ConvolutionWeight(weight_, problem_, computes_in_, builder);
  }

  // Finds the input. Uses the caller's tensor directly if it has too few
  // channels for blocks.
  void ReadInput(NetworkBuilder* builder) {
    const DataType dtype = builder->dtype();
    const std::optional<LibraryTensor> callers =
        dtype == computes_in_ ? CallersInput(x_, dtype, builder) : std::nullopt;
    if (callers) {
      callers_input_ = *callers;
    } else {
      input_ = builder->Value(x_);
    }
  }
  // Returns the input for a pass.
  LibraryTensor Input(NetworkBuilder* builder) const {
    if (callers_input_.location.buffer != kNoBuffer) return callers_input_;
    return TensorOf(Converted(input_, computes_in_, builder));
  }

  // Appends a pass of `problem_`: as a FastPass where that is allowed and
  // faster, and by the library for what that leaves.
  void AddPass(const PassToAdd& pass, const StepTensors& tensors,
               NetworkBuilder* builder) const {
    if (is_mirrored_) {
      AddDirectPass(pass, tensors, builder);
      return;
    }
    FastPass fast = {pass.pass,
                     problem_,
                     builder->Like(x_, Form::kImage),
                     builder->Like(step_.result),
                     tensors.weight.location.buffer,
                     pass.bias};
    fast.x.buffer = tensors.input.location.buffer;
    fast.y.buffer = tensors.result.location.buffer;
    const bool is_fast =
        builder->operation().request().fast && IsFastByWinograd(fast);
    fast.x.blocks.dtype = fast.y.blocks.dtype = computes_in_;
    if (pass.pass == Pass::kBackwardWeight &&
        AddOwnGradient(fast, pass.kind, tensors, builder)) {
      return;
    }
    if (callers_input_.location.buffer == kNoBuffer && IsFastAsSequence(fast)) {
      AddSequencePass(fast, pass.kind, builder);
    } else if (IsFastByTaps(fast, is_fast, builder->steps().size())) {
      AddByTaps(fast, pass.kind, step_.result, builder);
    } else if (is_fast) {
      builder->MarkFast(step_.result);
      const BufferId flag = AddWinograd(fast, pass.kind, builder);
      const size_t begin = builder->steps().size();
      PassToAdd direct = pass;
      direct.is_fallback = true;
      AddDirectPass(direct, tensors, builder);
      builder->RunOnlyIf(flag, begin);
    } else {
      AddDirectPass(pass, tensors, builder);
    }
  }

  static NetworkTensor InF32Blocks(const NetworkTensor& tensor,
                                   Schedule* schedule) {
    if (IsInBlocks(tensor, DataType::kF32)) return tensor;
    NetworkTensor blocks = TensorLike(tensor.dims, DataType::kF32, tensor.form,
                                      ChannelsPerBlock());
    blocks.buffer = schedule->AddBuffer(blocks.blocks.bytes());
    AddConversion(tensor, blocks, schedule);
    return blocks;
  }

  // Appends the weight gradient of a depthwise convolution if the library has
  // no fast one for these layouts. Returns whether it did.
  bool AddOwnGradient(FastPass own, absl::string_view kind,
                      const StepTensors& tensors, Schedule* schedule) const {
    if (callers_input_.location.buffer != kNoBuffer || !IsDepthwise(problem_) ||
        problem_.axes.size() > 2 || problem_.in_channels <= kFewChannels) {
      return false;
    }
    const dnnl::primitive_desc_base librarys = FindFastPass(
        own.pass, problem_, tensors.input.desc, tensors.result.desc);
    // Others of the library's compute each channel as a small group, up to 10
    // times slower.
    if (librarys && absl::StrContains(librarys.impl_info_str(), "dw")) {
      return false;
    }
    own.x = InF32Blocks(own.x, schedule);
    own.y = InF32Blocks(own.y, schedule);
    AddDepthwiseGradient(own, kind, schedule);
    return true;
  }

  // Appends a pass of `problem_`, with the reorders of its operands and its
  // result.
  void AddDirectPass(const PassToAdd& pass, const StepTensors& tensors,
                     NetworkBuilder* builder) const {
    const LibraryTensor& data = is_mirrored_ ? tensors.result : tensors.input;
    const LibraryTensor& out = is_mirrored_ ? tensors.input : tensors.result;
    AddConvPass(
        {.pass = pass.pass,
         .problem = problem_,
         .data = data,
         .weight = tensors.weight,
         .out = out,
         .bias = is_mirrored_ ? kNoBuffer : pass.bias,
         .kind = pass.kind,
         // The quanta count a pass once.
         .macs =
             pass.is_fallback ? 0 : static_cast<double>(MultiplyAdds(problem_)),
         .name = step_.result},
        builder);
  }

  const ProgramStep& step_;
  const std::string x_, weight_, bias_;
  bool is_mirrored_ = false;
  // An ordinary problem: the step's, or its mirror.
  ConvProblem problem_;
  DataType computes_in_ = DataType::kF32;
  // One of these holds the input.
  std::optional<PaddedConvolution> padded_;
  NetworkTensor input_;
  LibraryTensor callers_input_;
  memory::desc weight_desc_;
};

// Refuses outputs that end in a stride or more of elements without products.
absl::Status CheckOutputPadding(const ProgramStep& step,
                                const ProgramShapes& shapes,
                                const std::string& path) {
  for (const SpatialAxis& axis : ProblemOf(step, shapes).axes) {
    const int64_t limit = axis.stride + axis.pad_end;
    if (axis.output_padding < limit) continue;
    return Unsupported(absl::StrCat(path, ".output_padding"),
                       axis.output_padding,
                       absl::StrCat("less than stride + padding, ", limit));
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<NetworkGroup> MakeConvolution(const ProgramStep& step) {
  return std::make_unique<Convolution>(step);
}

std::vector<NetworkOperator> NetworkConvolutions() {
  return {{Operator::kConv, &MakeOfStep<Convolution>},
          {Operator::kConvTranspose, &MakeOfStep<Convolution>,
           &CheckOutputPadding}};
}

}  // namespace convgrad::onednn
