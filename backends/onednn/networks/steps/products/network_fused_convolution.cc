// Implements a convolution at inference, fused with the batch_norm of running
// statistics, the add and the activation after it. The library computes all of
// them before it writes the result. The batch_norm of an f32 convolution is an
// exception: its scale is multiplied into the weights and its shift is the
// bias, which costs nothing. In bf16, rounding the scaled weights would change
// the results.
#include <optional>
#include <string>
#include <utility>

#include "backends/core/convolution/lowering.h"
#include "backends/core/program/operators/convolution.h"
#include "backends/core/status.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/schedule/network_guard.h"
#include "backends/onednn/networks/schedule/network_ranges.h"
#include "backends/onednn/networks/steps/network_operator.h"
#include "backends/onednn/networks/steps/products/network_conv_descs.h"
#include "backends/onednn/networks/steps/products/network_conv_dtype.h"
#include "backends/onednn/networks/steps/products/network_conv_epilogue.h"
#include "backends/onednn/networks/steps/products/network_conv_taps.h"
#include "backends/onednn/networks/steps/products/network_folded_norm.h"
#include "backends/onednn/networks/steps/products/network_winograd.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

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

  absl::Status Forward(NetworkBuilder* builder) override {
    if (!IsByTaps(builder) && (AddFast(builder) || AddFused(builder))) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(MakeConvolution(convolution_)->Forward(builder));
    for (const auto& other : others_) RETURN_IF_ERROR(other->Forward(builder));
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* /*builder*/) override {
    return absl::InternalError("a fused convolution has no backward");
  }

 private:
  // The library's implementation in one dtype.
  struct Way {
    DataType dtype;
    // The result, without memory.
    NetworkTensor like;
    // Whether the weight is scaled and the shift is the bias.
    bool scales_weight = false;
    bool has_bias = false;
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

  bool is_capped() const {
    return activation_.activation == Activation::kRelu6;
  }
  const std::string& x() const { return convolution_.operands[0]; }
  // Returns "" if there is none.
  std::string bias() const { return OperandAt(convolution_, 2); }
  const std::string& result() const {
    return program_.steps[steps_.last()].result;
  }
  bool IsByTaps(NetworkBuilder* builder) const {
    FastPass pass = PassOf(*builder);
    pass.x.blocks.dtype = pass.y.blocks.dtype = Native(*builder);
    return IsFastByTaps(pass, IsFast(*builder),
                        builder->schedule().steps().size());
  }
  DataType Native(const NetworkBuilder& builder) const {
    return ConvolutionDtype(problem_, false, {Pass::kForward},
                            builder.Like(x(), Form::kImage),
                            builder.Like(convolution_.result), builder);
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

  bool AddFused(NetworkBuilder* builder) const {
    const DataType native = Native(*builder);
    return AddFused(native, builder) ||
           (native != DataType::kF32 && AddFused(DataType::kF32, builder));
  }

  // Appends the fused step, computed in `dtype`, if the library has a fast
  // implementation. Returns whether it has one.
  bool AddFused(DataType dtype, NetworkBuilder* builder) const {
    const std::optional<Way> way = WayIn(dtype, builder);
    if (!way) return false;
    if (is_capped() && !AddRangeCheckOn(activated_, builder)) return false;
    Append(*way, builder);
    builder->SetMayRepeat();
    return true;
  }

  // Returns nullopt if the library has only plain loops.
  std::optional<Way> WayIn(DataType dtype, NetworkBuilder* builder) const {
    Way way = {.dtype = dtype,
               .like = LikeIn(dtype, result(), *builder),
               .scales_weight = norm_ != nullptr && dtype == DataType::kF32};
    if (dtype == builder->dtype()) {
      way.callers = CallersInput(x(), dtype, builder);
    }
    way.has_bias = way.scales_weight || (norm_ == nullptr && !bias().empty());
    way.epilogue = MakeConvEpilogue(
        problem_, DescOf(way.like),
        {.scale_and_shift = norm_ != nullptr && !way.scales_weight,
         .addend = !addend_.empty(),
         .activation = activation_.activation});
    way.descs = {
        way.callers ? way.callers->desc : DescOf(LikeIn(dtype, x(), *builder)),
        {WeightDimsOf(problem_), TypeOf(dtype), memory::format_tag::any},
        DescOf(way.like),
        {},
        way.epilogue.post_ops};
    if (way.has_bias) {
      way.descs.bias = {{problem_.out_channels},
                        memory::data_type::f32,
                        memory::format_tag::a};
    }
    for (const bool as_it_lies : {true, false}) {
      if (!as_it_lies) way.descs.data = WithAnyLayout(way.descs.data);
      way.pass = MakePassDesc(Pass::kForward, problem_, way.descs);
      if (way.pass && !IsPlainLoop(way.pass)) return way;
    }
    return std::nullopt;
  }

  void Append(const Way& way, NetworkBuilder* builder) const {
    Schedule& schedule = builder->schedule();
    LibraryStep step({.kind = "conv forward",
                      .macs = static_cast<double>(MultiplyAdds(problem_)),
                      .primitive_desc = way.pass},
                     &schedule);
    const PassArguments args = ArgumentsOf(Pass::kForward);
    step.Read(args.data, way.callers
                             ? *way.callers
                             : TensorOf(Converted(builder->Value(x()),
                                                  way.dtype, &schedule)));
    FoldedNorm norm;
    if (norm_ != nullptr) norm = AddFoldedNorm(*norm_, bias(), builder);
    const LibraryTensor weight = ConvolutionWeight(
        convolution_.operands[1], problem_, way.dtype, builder);
    if (way.scales_weight) {
      step.ReadScaled(
          args.weight, weight,
          {norm.scale, problem_.out_channels, problem_.groups > 1 ? 3 : 1});
    } else {
      step.Read(args.weight, weight);
    }
    if (way.has_bias) {
      step.Read(args.bias,
                {way.scales_weight ? norm.shift : builder->Parameter(bias()),
                 way.descs.bias});
    }
    ReadPostOps(way, norm, builder, &step);
    const NetworkTensor y = builder->AddValue(result());
    const NetworkTensor computed = ComputedIn(way.dtype, y, &schedule);
    step.Write(args.out, TensorOf(computed));
    step.Finish();
    AddConversion(computed, y, &schedule);
  }

  // Returns a tensor like a value, but in `dtype`.
  static NetworkTensor LikeIn(DataType dtype, const std::string& name,
                              const NetworkBuilder& builder) {
    NetworkTensor like = builder.Like(name);
    like.blocks.dtype = dtype;
    return like;
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
    read(epilogue.scale, DNNL_ARG_SRC_1,
         {norm.scale, PerChannelDesc(problem_)});
    read(epilogue.shift, DNNL_ARG_SRC_1,
         {norm.shift, PerChannelDesc(problem_)});
    if (epilogue.addend >= 0) {
      read(epilogue.addend, DNNL_ARG_SRC_1,
           TensorOf(Converted(builder->Value(addend_), way.dtype,
                              &builder->schedule())));
    }
    if (epilogue.slope < 0) return;
    const BufferId slope = builder->schedule().AddBuffer(sizeof(float));
    builder->schedule().Add({.kind = "fusion checks",
                             .writes = {slope},
                             .function = [slope, number = activation_.alpha](
                                             const RunContext& context) {
                               *context.Write<float>(slope) = number;
                             }});
    const memory::dims ones(problem_.axes.size() + 2, 1);
    read(epilogue.slope, DNNL_ARG_WEIGHTS,
         {slope, {ones, memory::data_type::f32, ones}});
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
