#include "backends/cuda/cuda_kernel_steps.h"

#include "backends/cuda/cuda_kernels.h"

namespace convgrad::cuda {

void AddElementwise(const Elements& from, const Elements& to,
                    const ElementEpilogue& epilogue, StepList* steps) {
  if (to.map.has_gaps && !epilogue.mask) {
    steps->AddZero(to.location, to.map.size * ByteSizeOf(to.map.dtype));
  }
  steps->Add([=](const StepList::Context& at) {
    const auto source = [&](const Elements& elements) {
      return ElementSource{at.At(elements.location), elements.map.dtype,
                           elements.map.map};
    };
    ElementwiseArguments arguments;
    arguments.extents = to.map.extents;
    arguments.from = source(from);
    if (epilogue.mask) arguments.mask = source(*epilogue.mask);
    if (epilogue.bias) arguments.bias = source(*epilogue.bias);
    if (epilogue.residual) arguments.residual = source(*epilogue.residual);
    arguments.relu = epilogue.relu;
    arguments.scale = epilogue.scale;
    arguments.to = at.At(to.location);
    arguments.to_dtype = to.map.dtype;
    arguments.to_map = to.map.map;
    return at.device->Check(LaunchElementwise(arguments, at.stream),
                            epilogue.mask ? "mask" : "elements");
  });
}

void AddBiasSum(const Elements& gradient, const TensorDescriptor& bias,
                float scale, const Location& result, StepList* steps) {
  const MappedTensor& from = gradient.map;
  BiasSumArguments arguments;
  arguments.extents = from.extents;
  arguments.kept =
      MapOf(TensorDescriptor{DataType::kF32, Layout::kNCX, bias.dims}, 1)
          .extents;
  arguments.from = {nullptr, from.dtype, from.map};
  arguments.scale = scale;
  arguments.to_dtype = bias.dtype;
  const Location partial =
      steps->Allocate(BiasSumScratchBytes(arguments.extents, arguments.kept));
  steps->Add([=, source = gradient.location](const StepList::Context& at) {
    BiasSumArguments now = arguments;
    now.from.data = at.At(source);
    now.to = at.At(result);
    now.partial_sums = static_cast<double*>(at.At(partial));
    return at.device->Check(LaunchBiasSum(now, at.stream), "bias sum");
  });
}

}  // namespace convgrad::cuda
