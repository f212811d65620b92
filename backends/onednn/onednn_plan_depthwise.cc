// PlanBuilder's way round the library for depthwise convolutions of f16.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/kernels/element_convert.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// Kernel, then channels: what F16Depthwise reads and sums.
TensorDescriptor KernelFirst(const TensorDescriptor& weight) {
  return {DataType::kF32, Layout::kXIO, weight.dims};
}

}  // namespace

std::optional<F16Depthwise> PlanBuilder::F16DepthwiseOf() const {
  if (operation_.dtype() != DataType::kF16 || operation_.problem.axes.empty() ||
      lowering_.mirrored() || lowering_.crops_data() ||
      lowering_.crops_weight()) {
    return std::nullopt;
  }
  return F16Depthwise::Make(lowering_.problem());
}

PlanBuilder::Tensor PlanBuilder::RowMajor(const Tensor& tensor) {
  if (IsRowMajor(tensor.descriptor.layout)) return tensor;
  const TensorDescriptor made = {tensor.descriptor.dtype, Layout::kNXC,
                                 tensor.descriptor.dims};
  return {made, program_.Allocate(*ByteSize(made))};
}

PlanBuilder::Tensor PlanBuilder::ReadRowMajor(const Tensor& tensor) {
  Tensor row_major = RowMajor(tensor);
  AddMove(tensor, row_major);
  return row_major;
}

PlanBuilder::Tensor PlanBuilder::ReadKernelFirst(const Tensor& weight) {
  const TensorDescriptor packed = KernelFirst(weight.descriptor);
  Tensor copy = {packed, program_.Allocate(*ByteSize(packed))};
  AddMove(weight, copy);
  return copy;
}

void PlanBuilder::AddMove(const Tensor& from, const Tensor& to) {
  if (from.location == to.location) return;
  AddReorder(Reorder::Make(from.descriptor, to.descriptor), from.location,
             to.location);
}

void PlanBuilder::AddF16Depthwise(
    const F16Depthwise& depthwise,
    const std::vector<Convolution>& convolutions) {
  const auto shared = std::make_shared<const F16Depthwise>(depthwise);
  const Convolution* backward_data = nullptr;
  const Convolution* backward_weight = nullptr;
  for (const Convolution& conv : convolutions) {
    absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ",
                    NameOf(conv.pass), "=f16_depthwise");
    if (conv.pass == Pass::kForward) AddF16DepthwiseForward(shared, conv);
    if (conv.pass == Pass::kBackwardData) backward_data = &conv;
    if (conv.pass == Pass::kBackwardWeight) backward_weight = &conv;
  }
  if (backward_data != nullptr || backward_weight != nullptr) {
    AddF16DepthwiseBackward(shared, backward_data, backward_weight);
  }
  for (const Convolution& conv : convolutions) FinishSink(conv);
}

void PlanBuilder::AddF16DepthwiseForward(
    const std::shared_ptr<const F16Depthwise>& depthwise,
    const Convolution& conv) {
  const PassTensors& tensors = conv.tensors;
  const Tensor weight = ReadKernelFirst(tensors.weight);
  const Tensor data = ReadRowMajor(tensors.data);
  const Tensor out = RowMajor(tensors.out);
  const int64_t items = depthwise->forward_items();
  const int64_t own_bytes = depthwise->scratch_bytes();
  const Location scratch =
      program_.Allocate(PartCount(threads_, items, 1) * own_bytes);
  program_.AddComputeStep(
      {data.location},
      [=, threads = threads_, has_bias = tensors.bias_dtype.has_value(),
       bias = tensors.bias](const Memory& memory) {
        const F16Depthwise::ForwardTensors all = {
            .data = {memory.Read(data.location), data.descriptor.layout},
            .weight = static_cast<const float*>(memory.Read(weight.location)),
            .bias = has_bias ? static_cast<const float*>(memory.Read(bias))
                             : nullptr,
            .out = {memory.Write(out.location), out.descriptor.layout,
                    out.descriptor.dtype}};
        auto* own = static_cast<std::byte*>(memory.Write(scratch));
        ParallelFor(
            threads, items, 1, [&](int part, int64_t begin, int64_t end) {
              depthwise->Forward(all, own + part * own_bytes, begin, end);
            });
      });
  AddMove(out, tensors.out);
}

void PlanBuilder::AddF16DepthwiseBackward(
    const std::shared_ptr<const F16Depthwise>& depthwise,
    const Convolution* data_pass, const Convolution* weight_pass) {
  const Tensor grad = ReadRowMajor(gradient_);
  const int64_t items = depthwise->backward_items();
  const int parts = PartCount(threads_, items, 1);
  const int64_t own_bytes = depthwise->scratch_bytes();
  const Location scratch = program_.Allocate(parts * own_bytes);
  std::optional<Tensor> weight, grad_data, data, sums;
  std::vector<Location> reads = {grad.location};
  if (data_pass != nullptr) {
    weight = ReadKernelFirst(data_pass->tensors.weight);
    grad_data = RowMajor(data_pass->tensors.data);
  }
  const int64_t count = depthwise->sum_count();
  if (weight_pass != nullptr) {
    data = ReadRowMajor(weight_pass->tensors.data);
    reads.push_back(data->location);
    sums = Tensor{KernelFirst(weight_pass->tensors.weight.descriptor),
                  program_.Allocate(parts * count * kFloatBytes)};
  }
  program_.AddComputeStep(reads, [=, threads = threads_](const Memory& memory) {
    F16Depthwise::BackwardTensors all;
    all.grad = {memory.Read(grad.location), grad.descriptor.layout};
    if (grad_data) {
      all.weight = static_cast<const float*>(memory.Read(weight->location));
      all.grad_data = {memory.Write(grad_data->location),
                       grad_data->descriptor.layout,
                       grad_data->descriptor.dtype};
    }
    if (sums) {
      all.data = {memory.Read(data->location), data->descriptor.layout};
      all.sums = static_cast<float*>(memory.Write(sums->location));
    }
    auto* own = static_cast<std::byte*>(memory.Write(scratch));
    ParallelFor(threads, items, 1, [&](int part, int64_t begin, int64_t end) {
      F16Depthwise::BackwardTensors mine = all;
      if (sums) {
        mine.sums += part * count;
        std::fill_n(mine.sums, count, 0.0f);
      }
      depthwise->Backward(mine, own + part * own_bytes, begin, end);
    });
    if (!sums) return;
    for (int part = 1; part < parts; ++part) {
      const float* more = all.sums + part * count;
      for (int64_t i = 0; i < count; ++i) all.sums[i] += more[i];
    }
  });
  if (data_pass != nullptr) AddMove(*grad_data, data_pass->tensors.data);
  if (weight_pass == nullptr) return;
  AddMove(*sums, weight_pass->tensors.weight);
  AddF16DepthwiseBias(sums->location.At(*ByteSize(sums->descriptor)));
}

void PlanBuilder::AddF16DepthwiseBias(Location sums) {
  if (!FusesGradBias()) return;
  sums_bias_in_pass_ = true;
  const ResultRequest* bias = operation_.result(Result::kGradBias);
  const Location result =
      ResultTensor(bias - operation_.results.data()).location;
  program_.AddHostStep(
      {}, [=, dtype = bias->descriptor.dtype,
           channels = lowering_.problem().groups](const Memory& memory) {
        ConvertRun(DataType::kF32, memory.Read(sums), dtype,
                   memory.Write(result), channels);
      });
}

}  // namespace convgrad::onednn
