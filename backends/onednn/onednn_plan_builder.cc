#include "backends/onednn/onednn_plan_builder.h"

#include <memory>
#include <utility>

#include "backends/onednn/onednn_cost_model.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Whether a pointwise pass of stride 2 is faster on a copy of what it reads:
// measured on an EPYC 9004 (tests/bench/compute_ratio), ResNet-50's take 0.7 to
// 1.0 times as long in 16 bits, 0.8 to 1.2 times in f32.
bool GathersSteps(const ConvOperation& operation) {
  const auto& input = operation.operand(Operand::kInput);
  const auto& activation =
      input ? input : operation.operand(Operand::kGradOutput);
  return activation && ByteSizeOf(activation->dtype) == 2;
}

}  // namespace

PlanBuilder::PlanBuilder(const ConvOperation& operation,
                         const ComputeOptions& options,
                         const FormatPreference& preference)
    : operation_(operation),
      lowering_(operation.problem, GathersSteps(operation)),
      options_(options),
      threads_(options.threads),
      preference_(preference) {}

absl::Status PlanBuilder::Build() {
  PrepareGradient();
  std::vector<Convolution> convolutions;
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    switch (operation_.results[i].which) {
      case Result::kOutput:
        convolutions.push_back(PrepareForward(i));
        break;
      case Result::kGradInput:
        convolutions.push_back(PrepareGradInput(i));
        break;
      case Result::kGradWeight:
        convolutions.push_back(PrepareGradWeight(i));
        break;
      case Result::kGradBias:
        break;
      case Result::kGradResidual:
        AddGradResidual(i);
        break;
    }
  }
  if (!convolutions.empty()) {
    RETURN_IF_ERROR(AddConvolutions(std::move(convolutions)));
  }
  AddGradBias();
  return absl::OkStatus();
}

PlanBuilder::Tensor PlanBuilder::OperandTensor(Operand operand) const {
  return {*operation_.operand(operand),
          {Location::Area::kOperand, static_cast<int>(operand), 0}};
}

PlanBuilder::Tensor PlanBuilder::ResultTensor(size_t index) const {
  return {operation_.results[index].descriptor,
          {Location::Area::kResult, static_cast<int>(index), 0}};
}

void PlanBuilder::PrepareGradient() {
  if (operation_.direction == Direction::kForward) return;
  gradient_ = OperandTensor(Operand::kGradOutput);
  if (!operation_.problem.relu) return;
  const Tensor grad = gradient_;
  Tensor output = OperandTensor(Operand::kOutput);
  const Layout layout = grad.descriptor.layout;
  if (layout != output.descriptor.layout &&
      !(IsRowMajor(layout) && IsRowMajor(output.descriptor.layout))) {
    // Blocked layouts are masked as they lie, pad lanes and all.
    Tensor moved = output;
    moved.descriptor.layout = layout;
    moved.descriptor.c0 = grad.descriptor.c0;
    moved.location = program_.Allocate(*ByteSize(moved.descriptor));
    AddReorder(Reorder::Make(output.descriptor, moved.descriptor),
               output.location, moved.location);
    output = moved;
  }
  gradient_.location = program_.Allocate(*ByteSize(grad.descriptor));
  program_.AddHostStep(
      {grad.location, output.location},
      [threads = threads_, grad, output,
       masked = gradient_.location](const Memory& memory) {
        MaskGradient(threads, grad.descriptor, memory.Read(grad.location),
                     output.descriptor, memory.Read(output.location),
                     memory.Write(masked));
      });
}

PlanBuilder::Sink PlanBuilder::MakeSink(size_t index, bool needs_epilogue) {
  const Tensor result = ResultTensor(index);
  Sink sink{result, result, !needs_epilogue};
  if (!needs_epilogue) return sink;
  TensorDescriptor& sum = sink.sum.descriptor;
  sum.dtype = DataType::kF32;
  if (!IsRowMajor(sum.layout)) {
    sum.layout = IsWeightLayout(sum.layout) ? Layout::kOIX : Layout::kNXC;
  }
  if (sum != result.descriptor) {
    sink.sum.location = program_.Allocate(*ByteSize(sum));
  }
  return sink;
}

void PlanBuilder::FinishSink(const Convolution& convolution) {
  const Sink& sink = convolution.sink;
  const Epilogue& epilogue = convolution.epilogue;
  if (sink.is_whole) {
    if (!epilogue.relu) return;
    program_.AddHostStep({}, [threads = threads_,
                              result = sink.result](const Memory& memory) {
      ReluInPlace(threads, result.descriptor, memory.Write(result.location));
    });
    return;
  }
  // A blocked result is packed from the finished f32, which rounds it.
  const bool packs = !IsRowMajor(sink.result.descriptor.layout);
  const Tensor target = packs ? sink.sum : sink.result;
  std::vector<Location> reads;
  if (epilogue.residual) reads.push_back(convolution.residual);
  program_.AddHostStep(reads, [=, threads = threads_, bias = convolution.bias,
                               residual =
                                   convolution.residual](const Memory& memory) {
    ApplyEpilogue(
        threads, epilogue,
        static_cast<const float*>(memory.Read(sink.sum.location)),
        epilogue.bias ? static_cast<const float*>(memory.Read(bias)) : nullptr,
        epilogue.residual ? memory.Read(residual) : nullptr, target.descriptor,
        memory.Write(target.location));
  });
  if (packs) {
    AddReorder(Reorder::Make(target.descriptor, sink.result.descriptor),
               target.location, sink.result.location);
  }
}

PlanBuilder::Convolution PlanBuilder::PrepareForward(size_t index) {
  const ConvProblem& problem = operation_.problem;
  Convolution conv;
  conv.pass = lowering_.PassFor(Result::kOutput);
  conv.epilogue.relu = problem.relu;
  conv.epilogue.scale = operation_.results[index].scale;
  if (problem.bias && FusesBias()) {
    conv.tensors.bias_dtype = DataType::kF32;
    conv.tensors.bias = AddBias(true);
  } else if (problem.bias) {
    conv.epilogue.bias = BroadcastBiasDims(problem, *problem.bias);
    conv.bias = AddBias(false);
  }
  if (problem.residual) {
    const Tensor tensor = RowMajorOf(OperandTensor(Operand::kResidual));
    conv.epilogue.residual = tensor.descriptor;
    conv.residual = tensor.location;
  }
  conv.sink = MakeSink(index, conv.epilogue.bias || conv.epilogue.residual ||
                                  conv.epilogue.scale != 1);
  const Tensor input = OperandTensor(Operand::kInput);
  conv.tensors.weight = OperandTensor(Operand::kWeight);
  conv.tensors.data = lowering_.mirrored() ? conv.sink.sum : input;
  conv.tensors.out = lowering_.mirrored() ? input : conv.sink.sum;
  return conv;
}

PlanBuilder::Convolution PlanBuilder::PrepareGradInput(size_t index) {
  Convolution conv;
  conv.pass = lowering_.PassFor(Result::kGradInput);
  conv.epilogue.scale = operation_.results[index].scale;
  conv.sink = MakeSink(index, conv.epilogue.scale != 1);
  conv.tensors.weight = OperandTensor(Operand::kWeight);
  conv.tensors.data = lowering_.mirrored() ? gradient_ : conv.sink.sum;
  conv.tensors.out = lowering_.mirrored() ? conv.sink.sum : gradient_;
  return conv;
}

PlanBuilder::Convolution PlanBuilder::PrepareGradWeight(size_t index) {
  Convolution conv;
  conv.pass = Pass::kBackwardWeight;
  conv.epilogue.scale = operation_.results[index].scale;
  conv.sink = MakeSink(index, conv.epilogue.scale != 1);
  const Tensor input = OperandTensor(Operand::kInput);
  conv.tensors.weight = conv.sink.sum;
  conv.tensors.data = lowering_.mirrored() ? gradient_ : input;
  conv.tensors.out = lowering_.mirrored() ? input : gradient_;
  return conv;
}

absl::Status PlanBuilder::AddConvolutions(
    std::vector<Convolution> convolutions) {
  if (const auto depthwise = F16DepthwiseOf()) {
    AddF16Depthwise(*depthwise, convolutions);
    return absl::OkStatus();
  }
  const bool shares = convolutions.size() > 1;
  std::vector<PassSpec> specs;
  specs.reserve(convolutions.size());
  for (const Convolution& conv : convolutions) {
    specs.push_back(SpecOf(conv.pass, conv.tensors, shares));
  }
  ASSIGN_OR_RETURN(const std::vector<ChosenPass> chosen,
                   ChooseFormats(std::move(specs), preference_));
  for (size_t i = 0; i < convolutions.size(); ++i) {
    RETURN_IF_ERROR(AddConvolution(std::move(convolutions[i]), chosen[i]));
  }
  return absl::OkStatus();
}

absl::Status PlanBuilder::AddConvolution(Convolution conv,
                                         const ChosenPass& chosen) {
  ASSIGN_OR_RETURN(std::optional<Candidate> candidate,
                   MakeCandidate(chosen.spec, chosen.format));
  if (conv.pass == Pass::kBackwardWeight && FusesGradBias()) {
    RETURN_IF_ERROR(FuseGradBias(chosen.spec, &*candidate, &conv.tensors));
  }
  RETURN_IF_ERROR(AddPass(conv.pass, conv.tensors, *candidate));
  FinishSink(conv);
  return absl::OkStatus();
}

void PlanBuilder::AddGradResidual(size_t index) {
  const float scale = operation_.results[index].scale;
  const Tensor result = ResultTensor(index);
  if (scale == 1) {
    AddReorder(Reorder::Make(gradient_.descriptor, result.descriptor),
               gradient_.location, result.location);
    return;
  }
  Convolution none;
  none.epilogue.scale = scale;
  none.sink = MakeSink(index, true);
  AddReorder(Reorder::Make(gradient_.descriptor, none.sink.sum.descriptor),
             gradient_.location, none.sink.sum.location);
  FinishSink(none);
}

}  // namespace convgrad::onednn
