#include "backends/onednn/convolutions/onednn_host_steps.h"

#include <cstring>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_elementwise.h"

namespace convgrad::onednn {
namespace {

// Returns the offsets of the dead taps of one pair of output and input
// channels. All other pairs have the same offsets from their first element.
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
      is_dead |= lowering.IsDead(i, tap);
      offset += tap * strides[i + 2];
    }
    if (is_dead) offsets.push_back(offset);
  }
  return offsets;
}

}  // namespace

Elements ElementsOf(const Tensor& tensor) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  return {PhysicalLayoutOf(descriptor), descriptor.dtype, tensor.location};
}

void AddReorder(const Tensor& from, const Tensor& to, PlanBuilder* builder) {
  AddReorder(Reorder::Make(from.descriptor, to.descriptor), from.location,
             to.location, &builder->schedule());
}

void AddReorder(const Elements& from, const Elements& to,
                PlanBuilder* builder) {
  AddReorder(Reorder::Make(from.layout, from.dtype, to.layout, to.dtype),
             from.location, to.location, &builder->schedule());
}

void AddZero(const Tensor& tensor, PlanBuilder* builder) {
  builder->Add({}, {tensor.location},
               [=, bytes = *ByteSize(tensor.descriptor)](const RunContext& at) {
                 std::memset(at.At(tensor.location), 0, bytes);
               });
}

void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     PlanBuilder* builder) {
  const TensorDescriptor& tensor = gradient.descriptor;
  builder->Add({gradient.location}, {gradient.location},
               [=, strides = Strides(tensor),
                offsets = DeadOffsets(lowering, tensor)](const RunContext& at) {
                 std::byte* data = at.At(gradient.location);
                 const int64_t size = ByteSizeOf(tensor.dtype);
                 for (int64_t o = 0; o < tensor.dims[0]; ++o) {
                   for (int64_t i = 0; i < tensor.dims[1]; ++i) {
                     const int64_t base = o * strides[0] + i * strides[1];
                     for (int64_t offset : offsets) {
                       std::memset(data + (base + offset) * size, 0, size);
                     }
                   }
                 }
               });
}

void AddMask(const Tensor& gradient, const Tensor& output, const Tensor& masked,
             PlanBuilder* builder) {
  Tensor mask = output;
  const Layout layout = gradient.descriptor.layout;
  if (layout != mask.descriptor.layout &&
      !(IsRowMajor(layout) && IsRowMajor(mask.descriptor.layout))) {
    // Blocked layouts are masked in place, including pad lanes.
    mask.descriptor.layout = layout;
    mask.descriptor.c0 = gradient.descriptor.c0;
    mask = builder->Allocate(mask.descriptor);
    AddReorder(output, mask, builder);
  }
  builder->Add({gradient.location, mask.location}, {masked.location},
               [=](const RunContext& at) {
                 MaskGradient(at.threads(), gradient.descriptor,
                              at.At(gradient.location), mask.descriptor,
                              at.At(mask.location), at.At(masked.location));
               });
}

void AddFinish(const Finish& finish, PlanBuilder* builder) {
  const auto& [sums, result, epilogue, bias, residual] = finish;
  if (!epilogue.needs_sums()) {
    if (!epilogue.relu) return;
    builder->Add({result.location}, {result.location},
                 [result = result](const RunContext& at) {
                   ReluInPlace(at.threads(), result.descriptor,
                               at.At(result.location));
                 });
    return;
  }
  // A blocked result is packed from the finished f32 values; packing rounds
  // them.
  const bool packs = !IsRowMajor(result.descriptor.layout);
  const Tensor target = packs ? sums : result;
  std::vector<Location> reads = {sums.location};
  if (epilogue.bias) reads.push_back(bias);
  if (epilogue.residual) reads.push_back(residual);
  builder->Add(
      reads, {target.location}, [finish, target](const RunContext& at) {
        ApplyEpilogue(at.threads(), finish.epilogue,
                      at.Read<float>(finish.sums.location),
                      at.Read<float>(finish.bias), at.At(finish.residual),
                      target.descriptor, at.At(target.location));
      });
  if (packs) AddReorder(target, result, builder);
}

}  // namespace convgrad::onednn
