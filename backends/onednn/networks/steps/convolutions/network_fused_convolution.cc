// Implements a convolution at inference, fused with the batch_norm of running
// statistics, the add and the activation after it. Winograd's algorithm or the
// library computes all four before it writes the result.
#include <optional>
#include <string>
#include <utility>

#include "backends/core/program/operators/convolution.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/schedule/network_ranges.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_dtype.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_epilogue.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_sequence.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_taps.h"
#include "backends/onednn/networks/steps/convolutions/network_folded_norm.h"
#include "backends/onednn/networks/steps/convolutions/network_padded_images.h"
#include "backends/onednn/networks/steps/convolutions/network_winograd.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Returns a tensor like a value, but in `dtype`.
NetworkTensor LikeIn(DataType dtype, const std::string& name,
                     const NetworkBuilder& builder) {
  NetworkTensor like = builder.Like(name);
  like.blocks.dtype = dtype;
  return like;
}

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
    if (!IsOurs(builder) && (AddFast(builder) || AddByLibrary(builder))) {
      return;
    }
    MakeConvolution(convolution_)->Forward(builder);
    for (const auto& other : others_) other->Forward(builder);
  }

  void Backward(NetworkBuilder* builder) override {
    builder->Fail(absl::InternalError("a fused convolution has no backward"));
  }

 private:
  // The library's implementation in one dtype.
  struct Way {
    DataType dtype;
    ConvProblem problem;  // the step's, or one on padded images
    bool is_padded = false;
    // The caller's input; nullopt if the input is a value of the program.
    std::optional<LibraryTensor> callers = std::nullopt;
    ConvEpilogue epilogue = {};
    ConvDescs descs = {};
    dnnl::primitive_desc_base pass = {};
  };

  // Returns the operand of an add that isn't the result of the convolution or
  // of its batch_norm.
  std::string AddendOf(const ProgramStep& add) const {
    const std::string& own =
        norm_ != nullptr ? norm_->result : convolution_.result;
    return add.operands[add.operands[0] == own ? 1 : 0];
  }

  const std::string& x() const { return convolution_.operands[0]; }
  const std::string& weight() const { return convolution_.operands[1]; }
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
    return IsFastByTaps(pass, IsFast(*builder), builder->steps().size());
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
    pass.x = builder->Value(x());
    pass.weight = builder->Parameter(weight());
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
  bool AddByLibrary(NetworkBuilder* builder) const {
    const DataType native = Native(*builder);
    std::optional<Way> way = WayIn(native, builder);
    if (!way && native != DataType::kF32) way = WayIn(DataType::kF32, builder);
    if (!way) return false;
    if (activation_.activation == Activation::kRelu6) {
      const BufferId range = RangeOf(activated_, builder);
      if (range == kNoBuffer) return false;
      builder->RepeatIf(AddRangeCheck(range, builder));
    }
    Append(*way, builder);
    builder->SetMayRepeat();
    return true;
  }

  // Returns whether the batch_norm's scale is multiplied into the weights, and
  // its shift is the bias, which costs nothing. In bf16, rounding the scaled
  // weights would change the results, so they are post-ops.
  bool ScalesWeight(DataType dtype) const {
    return norm_ != nullptr && dtype == DataType::kF32;
  }

  // Returns nullopt if the library has only plain loops. Throws dnnl::error.
  std::optional<Way> WayIn(DataType dtype, NetworkBuilder* builder) const {
    Way way = {.dtype = dtype, .problem = problem_};
    const NetworkTensor y = LikeIn(dtype, result(), *builder);
    way.is_padded =
        dtype == DataType::kBF16 && PadsImages(problem_, y, *builder);
    if (way.is_padded) {
      way.problem = PaddedProblem(problem_);
      way.descs.data = PaddedImagesDesc(way.problem);
    } else {
      if (dtype == builder->dtype()) {
        way.callers = CallersInput(x(), dtype, builder);
      }
      way.descs.data = way.callers ? way.callers->desc
                                   : DescOf(LikeIn(dtype, x(), *builder));
    }
    way.epilogue = MakeConvEpilogue(
        problem_, DescOf(y),
        {.scale_and_shift = norm_ != nullptr && !ScalesWeight(dtype),
         .addend = !addend_.empty(),
         .activation = activation_.activation});
    way.descs.weight = ConvWeightDesc(Pass::kForward, way.problem, dtype);
    way.descs.out = DescOf(y);
    way.descs.post_ops = way.epilogue.post_ops;
    if (ScalesWeight(dtype) || (norm_ == nullptr && !bias().empty())) {
      way.descs.bias = BiasDesc(problem_);
    }
    for (const bool as_it_lies : {true, false}) {
      if (!as_it_lies) way.descs.data = WithAnyLayout(way.descs.data);
      way.pass = MakePassDesc(Pass::kForward, way.problem, way.descs);
      if (way.pass && !IsPlainLoop(way.pass)) return way;
    }
    return std::nullopt;
  }

  // Appends the fused step. Throws dnnl::error.
  void Append(const Way& way, NetworkBuilder* builder) const {
    LibraryStep step({.kind = "conv forward",
                      .macs = static_cast<double>(MultiplyAdds(problem_)),
                      .primitive_desc = way.pass},
                     builder);
    step.Read(DNNL_ARG_SRC, DataFor(way, builder));
    FoldedNorm norm;
    if (norm_ != nullptr) norm = AddFoldedNorm(*norm_, bias(), builder);
    const LibraryTensor weights =
        way.is_padded
            ? PaddedWeight(weight(), way.problem, builder)
            : ConvolutionWeight(weight(), problem_, way.dtype, builder);
    const bool is_scaled = ScalesWeight(way.dtype);
    const ReorderScales scales = {norm.scale, problem_.out_channels,
                                  problem_.groups > 1 ? 3 : 1};
    step.Read(DNNL_ARG_WEIGHTS, weights, is_scaled ? &scales : nullptr);
    if (!way.descs.bias.is_zero()) {
      step.Read(DNNL_ARG_BIAS,
                {is_scaled ? norm.shift : builder->Parameter(bias()),
                 way.descs.bias});
    }
    ReadPostOps(way, norm, builder, &step);
    const NetworkTensor y = builder->AddValue(result());
    const NetworkTensor computed = ComputedIn(way.dtype, y, builder);
    step.Write(DNNL_ARG_DST, TensorOf(computed));
    step.Finish();
    AddConversion(computed, y, builder);
  }

  LibraryTensor DataFor(const Way& way, NetworkBuilder* builder) const {
    if (way.is_padded) return PaddedImages(x(), way.problem, builder);
    if (way.callers) return *way.callers;
    return TensorOf(Converted(builder->Value(x()), way.dtype, builder));
  }

  void ReadPostOps(const Way& way, const FoldedNorm& norm,
                   NetworkBuilder* builder, LibraryStep* step) const {
    const ConvEpilogue& epilogue = way.epilogue;
    const auto read = [&](int position, int argument,
                          const LibraryTensor& tensor) {
      if (position < 0) return;
      step->ReadAsItLies(DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | argument,
                         tensor);
    };
    const memory::desc numbers = PerChannelDesc(problem_);
    read(epilogue.scale, DNNL_ARG_SRC_1, {norm.scale, numbers});
    read(epilogue.shift, DNNL_ARG_SRC_1, {norm.shift, numbers});
    if (epilogue.addend >= 0) {
      read(epilogue.addend, DNNL_ARG_SRC_1,
           TensorOf(Converted(builder->Value(addend_), way.dtype, builder)));
    }
    if (epilogue.slope < 0) return;
    const memory::dims ones(problem_.axes.size() + 2, 1);
    read(epilogue.slope, DNNL_ARG_WEIGHTS,
         {AddNumber("fusion checks", activation_.alpha, builder),
          {ones, memory::data_type::f32, ones}});
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
