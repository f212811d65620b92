#include "backends/onednn/onednn_host_steps.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "backends/onednn/onednn_elementwise.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

void AddReorder(Reorder reorder, const Location& from, const Location& to,
                const Location& purpose, Program* program) {
  const auto shared = std::make_shared<const Reorder>(std::move(reorder));
  program->Add({.purpose = purpose,
                .reads = {from},
                .function = [=](const StepContext& context) {
                  const void* source = context.Read(from);
                  void* destination = context.Write(to);
                  ParallelFor(context.threads(), shared->part_count(), 1,
                              [&](int, int64_t begin, int64_t end) {
                                shared->Run(source, destination, begin, end);
                              });
                }});
}

// Returns the offsets of one output and input channel's dead taps; the others'
// are as far from their first element.
std::vector<int64_t> DeadOffsets(const Lowering& lowering,
                                 const TensorDescriptor& weight) {
  const Dims strides = Strides(weight);
  const absl::Span<const int64_t> kernel =
      absl::MakeConstSpan(weight.dims).subspan(2);
  int64_t taps = 1;
  for (int64_t extent : kernel) taps *= extent;
  std::vector<int64_t> offsets;
  for (int64_t flat = 0; flat < taps; ++flat) {
    int64_t offset = 0;
    bool is_dead = false;
    int64_t rest = flat;
    for (size_t i = kernel.size(); i-- > 0; rest /= kernel[i]) {
      const int64_t tap = rest % kernel[i];
      const Dims& dead = lowering.dead_taps()[i];
      is_dead |= std::find(dead.begin(), dead.end(), tap) != dead.end();
      offset += tap * strides[i + 2];
    }
    if (is_dead) offsets.push_back(offset);
  }
  return offsets;
}

void AddReluInPlace(const Tensor& tensor, Program* program) {
  program->Add({.function = [=](const StepContext& context) {
    ReluInPlace(context.threads(), tensor.descriptor,
                context.Write(tensor.location));
  }});
}

}  // namespace

Elements ElementsOf(const Tensor& tensor) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  return {PhysicalLayoutOf(descriptor), descriptor.dtype, tensor.location};
}

void AddReorder(const Tensor& from, const Tensor& to, Program* program,
                std::optional<Location> purpose) {
  AddReorder(Reorder::Make(from.descriptor, to.descriptor), from.location,
             to.location, purpose.value_or(to.location), program);
}

void AddReorder(const Elements& from, const Elements& to, Program* program) {
  AddReorder(Reorder::Make(from.layout, from.dtype, to.layout, to.dtype),
             from.location, to.location, to.location, program);
}

void AddReorder(const LibraryTensor& from, const LibraryTensor& to,
                Program* program) {
  const dnnl::reorder::primitive_desc reorder(
      CpuEngine(), from.desc, CpuEngine(), to.desc, StrictAttributes());
  program->Add({.purpose = to.location,
                .primitive = dnnl::reorder(reorder),
                .scratchpad = reorder.scratchpad_desc(),
                .arguments = {{DNNL_ARG_FROM, from.desc, from.location},
                              {DNNL_ARG_TO, to.desc, to.location}}});
}

void AddZero(const Tensor& tensor, Program* program) {
  program->Add({.function = [=, bytes = *ByteSize(tensor.descriptor)](
                                const StepContext& context) {
    std::memset(context.Write(tensor.location), 0, bytes);
  }});
}

void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     Program* program) {
  const TensorDescriptor& tensor = gradient.descriptor;
  program->Add({.function = [=, strides = Strides(tensor),
                             offsets = DeadOffsets(lowering, tensor)](
                                const StepContext& context) {
    auto* data = static_cast<std::byte*>(context.Write(gradient.location));
    const int64_t size = ByteSizeOf(tensor.dtype);
    for (int64_t o = 0; o < tensor.dims[0]; ++o) {
      for (int64_t i = 0; i < tensor.dims[1]; ++i) {
        const int64_t base = o * strides[0] + i * strides[1];
        for (int64_t offset : offsets) {
          std::memset(data + (base + offset) * size, 0, size);
        }
      }
    }
  }});
}

void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             Program* program) {
  Tensor mask = output;
  const Layout layout = gradient.descriptor.layout;
  if (layout != mask.descriptor.layout &&
      !(IsRowMajor(layout) && IsRowMajor(mask.descriptor.layout))) {
    // Blocked layouts are masked as they lie, pad lanes and all.
    mask.descriptor.layout = layout;
    mask.descriptor.c0 = gradient.descriptor.c0;
    mask = program->Allocate(mask.descriptor);
    AddReorder(output, mask, program);
  }
  program->Add({.reads = {gradient.location, mask.location},
                .function = [=](const StepContext& context) {
                  MaskGradient(context.threads(), gradient.descriptor,
                               context.Read(gradient.location), mask.descriptor,
                               context.Read(mask.location),
                               context.Write(masked.location));
                }});
}

void AddFinish(const Finish& finish, Program* program) {
  const Epilogue& epilogue = finish.epilogue;
  if (!epilogue.needs_sums()) {
    if (epilogue.relu) AddReluInPlace(finish.result, program);
    return;
  }
  // A blocked result is packed from the finished f32, which rounds it.
  const bool packs = !IsRowMajor(finish.result.descriptor.layout);
  const Tensor target = packs ? finish.sums : finish.result;
  Program::Step step;
  if (epilogue.residual) step.reads.push_back(finish.residual);
  step.function = [=](const StepContext& context) {
    const auto floats = [&](const Location& location) {
      return static_cast<const float*>(context.Read(location));
    };
    ApplyEpilogue(
        context.threads(), finish.epilogue, floats(finish.sums.location),
        finish.epilogue.bias ? floats(finish.bias) : nullptr,
        finish.epilogue.residual ? context.Read(finish.residual) : nullptr,
        target.descriptor, context.Write(target.location));
  };
  program->Add(std::move(step));
  if (packs) AddReorder(target, finish.result, program);
}

}  // namespace convgrad::onednn
