// PlanBuilder's steps of our own: masks, copies, epilogues and bias sums.
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/cuda_plan_builder.h"

namespace convgrad::cuda {

void PlanBuilder::PrepareGradient() {
  if (operation_.direction == Direction::kForward) return;
  gradient_ = OperandTensor(Operand::kGradOutput);
  if (!operation_.problem.relu) return;
  const Tensor grad = gradient_;
  const Tensor output = OperandTensor(Operand::kOutput);
  gradient_ = Allocate(grad.descriptor);
  const MappedTensor map = Mapped(grad.descriptor);
  const MappedTensor mask = Mapped(output.descriptor);
  program_.Add([=, masked = gradient_.location](const Program::Context& at) {
    ElementwiseArguments arguments;
    arguments.extents = map.extents;
    arguments.from = {at.At(grad.location), map.dtype, map.map};
    arguments.mask = {at.At(output.location), mask.dtype, mask.map};
    arguments.to = at.At(masked);
    arguments.to_dtype = map.dtype;
    arguments.to_map = map.map;
    return at.device->Check(LaunchElementwise(arguments, at.stream), "mask");
  });
}

void PlanBuilder::AddElementwise(const MappedTensor& from, Location source,
                                 const MappedTensor& to, Location destination,
                                 const Finish& finish) {
  if (to.has_gaps) {
    program_.AddZero(destination, to.size * ByteSizeOf(to.dtype));
  }
  ElementwiseArguments arguments;
  arguments.extents = to.extents;
  arguments.from = {nullptr, from.dtype, from.map};
  arguments.relu = finish.relu;
  arguments.scale = finish.scale;
  arguments.to_dtype = to.dtype;
  arguments.to_map = to.map;
  if (finish.bias) {
    const TensorDescriptor& bias = finish.bias->descriptor;
    arguments.bias = {
        nullptr, bias.dtype,
        BroadcastMap(BroadcastBiasDims(operation_.problem, bias.dims))};
  }
  if (finish.residual) {
    const MappedTensor residual = Mapped(finish.residual->descriptor);
    arguments.residual = {nullptr, residual.dtype, residual.map};
  }
  program_.Add([=](const Program::Context& at) {
    ElementwiseArguments now = arguments;
    now.from.data = at.At(source);
    if (finish.bias) now.bias.data = at.At(finish.bias->location);
    if (finish.residual) now.residual.data = at.At(finish.residual->location);
    now.to = at.At(destination);
    return at.device->Check(LaunchElementwise(now, at.stream), "elements");
  });
}

Location PlanBuilder::InFloat(const Tensor& bias) {
  if (bias.descriptor.dtype == DataType::kF32) return bias.location;
  TensorDescriptor flat{
      bias.descriptor.dtype, Layout::kNCX, {1, ElementCount(bias.descriptor)}};
  const MappedTensor from = Mapped(flat);
  flat.dtype = DataType::kF32;
  const Tensor copy = Allocate(flat);
  AddElementwise(from, bias.location, Mapped(flat), copy.location, {});
  return copy.location;
}

void PlanBuilder::AddGradBias(size_t index) {
  const ResultRequest& request = operation_.results[index];
  const MappedTensor from = Mapped(gradient_.descriptor);
  const Dims dims =
      BroadcastBiasDims(operation_.problem, request.descriptor.dims);
  BiasSumArguments arguments;
  arguments.extents = from.extents;
  arguments.kept =
      MapOf(TensorDescriptor{DataType::kF32, Layout::kNCX, dims}, 1).extents;
  arguments.from = {nullptr, from.dtype, from.map};
  arguments.scale = request.scale;
  arguments.to_dtype = request.descriptor.dtype;
  const Location partial =
      program_.Allocate(BiasSumScratchBytes(arguments.extents, arguments.kept));
  program_.Add(
      [=, source = gradient_.location,
       result = ResultTensor(index).location](const Program::Context& at) {
        BiasSumArguments now = arguments;
        now.from.data = at.At(source);
        now.to = at.At(result);
        now.partial_sums = static_cast<double*>(at.At(partial));
        return at.device->Check(LaunchBiasSum(now, at.stream), "bias sum");
      });
}

void PlanBuilder::AddGradResidual(size_t index) {
  const Tensor result = ResultTensor(index);
  Finish finish;
  finish.scale = operation_.results[index].scale;
  AddElementwise(Mapped(gradient_.descriptor), gradient_.location,
                 Mapped(result.descriptor), result.location, finish);
}

}  // namespace convgrad::cuda
