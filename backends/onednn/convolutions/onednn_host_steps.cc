#include "backends/onednn/convolutions/onednn_host_steps.h"

#include <cstring>

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

Tensor NewTensor(const TensorDescriptor& descriptor, Schedule* schedule) {
  return {descriptor, schedule->AddBuffer(*ByteSize(descriptor))};
}

Elements ElementsOf(const Tensor& tensor) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  return {PhysicalLayoutOf(descriptor), descriptor.dtype, tensor.location};
}

void AddReorder(const Tensor& from, const Tensor& to, Schedule* schedule) {
  AddReorder(Reorder::Make(from.descriptor, to.descriptor), from.location,
             to.location, schedule);
}

Tensor InLayoutOf(const Tensor& like, const Tensor& tensor,
                  Schedule* schedule) {
  TensorDescriptor wanted = like.descriptor;
  wanted.dtype = tensor.descriptor.dtype;
  if (wanted == tensor.descriptor) return tensor;
  Tensor copy = NewTensor(wanted, schedule);
  AddReorder(tensor, copy, schedule);
  return copy;
}

void AddZero(const Tensor& tensor, Schedule* schedule) {
  schedule->Add(
      kLayoutKind, {}, {tensor.location},
      [=, bytes = *ByteSize(tensor.descriptor)](const RunContext& at) {
        std::memset(at.At(tensor.location), 0, bytes);
      });
}

void AddZeroDeadTaps(const Lowering& lowering, const Tensor& gradient,
                     Schedule* schedule) {
  const TensorDescriptor& tensor = gradient.descriptor;
  schedule->Add(
      kLayoutKind, {gradient.location}, {gradient.location},
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
             Schedule* schedule) {
  const Tensor mask = InLayoutOf(gradient, output, schedule);
  schedule->Add(kLayoutKind, {gradient.location, mask.location},
                {masked.location}, [=](const RunContext& at) {
                  MaskGradient(at.threads(), gradient.descriptor,
                               at.At(gradient.location), mask.descriptor.dtype,
                               at.At(mask.location), at.At(masked.location));
                });
}

void AddFinish(const Finish& finish, Schedule* schedule) {
  const auto& [sums, result, epilogue, bias, residual] = finish;
  if (!epilogue.needs_sums()) {
    if (!epilogue.relu) return;
    schedule->Add(kLayoutKind, {result.location}, {result.location},
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
  schedule->Add(kLayoutKind, reads, {target.location},
                [finish, target](const RunContext& at) {
                  ApplyEpilogue(at.threads(), finish.epilogue,
                                at.Read<float>(finish.sums.location),
                                at.Read<float>(finish.bias),
                                at.At(finish.residual), target.descriptor,
                                at.At(target.location));
                });
  if (packs) AddReorder(target, result, schedule);
}

}  // namespace convgrad::onednn
