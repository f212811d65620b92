// A convolution with the batch_norm of running statistics, the add and the
// activation that follow it, at inference: the batch_norm is part of the
// weights and the bias, the rest is done by the library before it writes.
#include <optional>
#include <string>
#include <vector>

#include "backends/core/lowering.h"
#include "backends/core/status.h"
#include "backends/kernels/batch_norm.h"
#include "backends/onednn/networks/network_conv_descs.h"
#include "backends/onednn/networks/network_groups.h"
#include "backends/onednn/networks/network_guard.h"
#include "backends/onednn/networks/network_library_step.h"
#include "backends/onednn/networks/network_ranges.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

class FusedConvolution final : public NetworkGroup {
 public:
  FusedConvolution(const convgrad::Program& program,
                   const ProgramShapes& shapes, const GroupSteps& steps)
      : program_(program),
        shapes_(shapes),
        steps_(steps),
        convolution_(program.steps[steps.convolution]),
        problem_(ProblemOf(convolution_, shapes)) {
    const ProgramStep& first = program.steps[steps.first];
    if (first.op == Operator::kBatchNorm) norm_ = &first;
    const size_t add = first.op == Operator::kAdd ? steps.first : steps.add;
    if (add != GroupSteps::kNone) addend_ = AddendOf(program.steps[add]);
    const bool is_activation =
        first.op == Operator::kRelu || first.op == Operator::kRelu6;
    const size_t activation = is_activation ? steps.first : steps.activation;
    if (activation != GroupSteps::kNone) {
      activation_ = &program.steps[activation];
    }
  }

  absl::Status Forward(NetworkBuilder* builder) override {
    if (AddFused(builder)) return absl::OkStatus();
    RETURN_IF_ERROR(MakeConvolution(convolution_)->Forward(builder));
    GroupSteps others = steps_;
    others.convolution = GroupSteps::kNone;
    return MakeGroup(program_, shapes_, others)->Forward(builder);
  }

  absl::Status Backward(NetworkBuilder* /*builder*/) override {
    return absl::InternalError("a fused convolution has no backward");
  }

 private:
  // What the library does to the result before it writes it, and the operands
  // of that: positions of post-ops.
  struct Epilogue {
    dnnl::post_ops post_ops;
    int addend = -1;
    int slope = -1;
  };
  // f32, one for each channel of the result.
  struct Factors {
    BufferId scale = kNoBuffer;
    BufferId shift = kNoBuffer;
  };

  // The operand of an add that isn't the convolution's, or its batch_norm's.
  std::string AddendOf(const ProgramStep& add) const {
    const std::string& own =
        norm_ != nullptr ? norm_->result : convolution_.result;
    return add.operands[add.operands[0] == own ? 1 : 0];
  }

  bool is_capped() const {
    return activation_ != nullptr && activation_->op == Operator::kRelu6;
  }
  const std::string& result() const {
    return program_.steps[steps_.last()].result;
  }

  // Appends it if the library has a good way. Returns whether it did.
  bool AddFused(NetworkBuilder* builder) const {
    const std::optional<LibraryTensor> callers =
        CallersInput(convolution_.operands[0], DataType::kF32, builder);
    const LibraryTensor x =
        callers ? *callers : TensorOf(builder->Value(convolution_.operands[0]));
    const NetworkTensor like = builder->Like(result());
    const Epilogue epilogue = EpilogueOn(like);
    const memory::dims per_channel = {problem_.out_channels};
    ConvDescs descs = {x.desc,
                       {WeightDimsOf(problem_), memory::data_type::f32,
                        memory::format_tag::any},
                       DescOf(like),
                       {}};
    const std::string bias = OperandAt(convolution_, 2);
    if (norm_ != nullptr || !bias.empty()) {
      descs.bias = {per_channel, memory::data_type::f32, memory::format_tag::a};
    }
    descs.post_ops = epilogue.post_ops;
    const dnnl::primitive_desc_base pass =
        MakePassDesc(Pass::kForward, problem_, descs);
    if (!pass || IsPlainLoop(pass)) return false;
    if (is_capped() && !AddRangeCheckOn(activation_->operands[0], builder)) {
      return false;
    }
    LibraryStep step({.kind = "conv forward",
                      .macs = static_cast<double>(MultiplyAdds(problem_)),
                      .primitive_desc = pass},
                     &builder->schedule());
    const PassArguments args = ArgumentsOf(Pass::kForward);
    step.Read(args.data, x);
    const LibraryTensor weight = {builder->Parameter(convolution_.operands[1]),
                                  PlainWeightDesc(problem_)};
    if (norm_ != nullptr) {
      const Factors factors = AddFactors(builder);
      step.ReadScaled(
          args.weight, weight,
          {factors.scale, problem_.out_channels, problem_.groups > 1 ? 3 : 1});
      step.Read(args.bias, {factors.shift, descs.bias});
    } else {
      step.Read(args.weight, weight);
      if (!bias.empty()) {
        step.Read(args.bias, {builder->Parameter(bias), descs.bias});
      }
    }
    ReadPostOps(epilogue, builder, &step);
    step.Write(args.out, TensorOf(builder->AddValue(result())));
    step.Finish();
    builder->SetMayRepeat();
    return true;
  }

  static LibraryTensor TensorOf(const NetworkTensor& tensor) {
    return {tensor.buffer, DescOf(tensor)};
  }

  Epilogue EpilogueOn(const NetworkTensor& result) const {
    Epilogue epilogue;
    if (!addend_.empty()) {
      epilogue.addend = epilogue.post_ops.len();
      epilogue.post_ops.append_binary(dnnl::algorithm::binary_add,
                                      DescOf(result));
    }
    if (activation_ == nullptr) return epilogue;
    if (is_capped()) {
      epilogue.post_ops.append_eltwise(dnnl::algorithm::eltwise_clip, 0, 6);
    } else {
      // In place of a ReLU, which would hide NaN; and + 0, which makes 0 of -0.
      epilogue.slope = epilogue.post_ops.len();
      epilogue.post_ops.append_prelu(0);
      epilogue.post_ops.append_eltwise(dnnl::algorithm::eltwise_linear, 1, 0);
    }
    return epilogue;
  }

  void ReadPostOps(const Epilogue& epilogue, NetworkBuilder* builder,
                   LibraryStep* step) const {
    if (epilogue.addend >= 0) {
      step->ReadAsItLies(
          DNNL_ARG_ATTR_MULTIPLE_POST_OP(epilogue.addend) | DNNL_ARG_SRC_1,
          TensorOf(builder->Value(addend_)));
    }
    if (epilogue.slope < 0) return;
    const BufferId zero = builder->schedule().AddBuffer(sizeof(float));
    builder->schedule().Add({.kind = "fusion checks",
                             .writes = {zero},
                             .function = [=](const RunContext& context) {
                               *context.Write<float>(zero) = 0;
                             }});
    const memory::dims ones(problem_.axes.size() + 2, 1);
    step->ReadAsItLies(
        DNNL_ARG_ATTR_MULTIPLE_POST_OP(epilogue.slope) | DNNL_ARG_WEIGHTS,
        {zero, {ones, memory::data_type::f32, ones}});
  }

  // Returns false if nothing can be known of how large `value` is.
  static bool AddRangeCheckOn(const std::string& value,
                              NetworkBuilder* builder) {
    const BufferId range = RangeOf(value, builder);
    if (range == kNoBuffer) return false;
    builder->RepeatIf(AddRangeCheck(range, &builder->schedule()));
    return true;
  }

  // Appends what finds the batch_norm's scale, and its shift with the bias.
  Factors AddFactors(NetworkBuilder* builder) const {
    const int64_t channels = problem_.out_channels;
    const int64_t bytes = channels * int64_t{sizeof(float)};
    Schedule& schedule = builder->schedule();
    const Factors factors = {schedule.AddBuffer(bytes),
                             schedule.AddBuffer(bytes)};
    const BufferId is_unsafe = schedule.AddBuffer(sizeof(int32_t));
    builder->RepeatIf(is_unsafe);
    const BufferId bias = builder->Parameter(OperandAt(convolution_, 2));
    const BufferId gamma = builder->Parameter(OperandAt(*norm_, 1));
    const BufferId beta = builder->Parameter(OperandAt(*norm_, 2));
    const BufferId mean = builder->Parameter(OperandAt(*norm_, 3));
    const BufferId variance = builder->Parameter(OperandAt(*norm_, 4));
    NetworkStep step = {.kind = "batch_norm forward",
                        .reads = {mean, variance},
                        .writes = {is_unsafe, factors.scale, factors.shift}};
    for (const BufferId buffer : {bias, gamma, beta}) {
      if (buffer != kNoBuffer) step.reads.push_back(buffer);
    }
    step.function = [=, epsilon = FloatAttribute(*norm_, "eps")](
                        const RunContext& context) {
      const auto widened = [&](BufferId buffer) {
        const auto* values = context.Read<float>(buffer);
        return std::vector<double>(values, values + channels);
      };
      const std::vector<double> means = widened(mean);
      const std::vector<double> variances = widened(variance);
      auto* scale = context.Write<float>(factors.scale);
      auto* shift = context.Write<float>(factors.shift);
      FoldNorm({.blocks = {1, channels, 1, channels, DataType::kF32},
                .gamma = context.Read<float>(gamma),
                .beta = context.Read<float>(beta),
                .epsilon = epsilon,
                .mean = means.data(),
                .variance = variances.data(),
                .training = false,
                .scratch = nullptr},
               context.Read<float>(bias), scale, shift);
      const auto count = static_cast<size_t>(channels);
      *context.Write<int32_t>(is_unsafe) =
          AreSafeFactors({scale, count}, {shift, count}) ? 0 : 1;
    };
    schedule.Add(std::move(step));
    return factors;
  }

  const convgrad::Program& program_;
  const ProgramShapes& shapes_;
  const GroupSteps steps_;
  const ProgramStep& convolution_;
  const ConvProblem problem_;
  const ProgramStep* norm_ = nullptr;        // null: none
  std::string addend_;                       // "": none
  const ProgramStep* activation_ = nullptr;  // null: none
};

}  // namespace

std::unique_ptr<NetworkGroup> MakeFusedConvolution(
    const convgrad::Program& program, const ProgramShapes& shapes,
    const GroupSteps& steps) {
  return std::make_unique<FusedConvolution>(program, shapes, steps);
}

}  // namespace convgrad::onednn
