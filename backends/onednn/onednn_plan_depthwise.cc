// PlanBuilder's way round the library for depthwise convolutions of f16.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "backends/core/element_convert.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

TensorDescriptor ChannelsLast(const TensorDescriptor& tensor) {
  return {tensor.dtype, Layout::kNXC, tensor.dims};
}

// Kernel, then channels: what HalfDepthwise reads and sums.
TensorDescriptor KernelFirst(const TensorDescriptor& weight) {
  return {DataType::kF32, Layout::kXIO, weight.dims};
}

}  // namespace

std::optional<HalfDepthwise> PlanBuilder::HalfDepthwiseOf() const {
  if (OperandDtype(operation_) != DataType::kF16 ||
      ComputeDtype(DataType::kF16) == DataType::kF16 ||
      operation_.problem.axes.empty() || lowering_.mirrored() ||
      lowering_.crops_data() || lowering_.crops_weight()) {
    return std::nullopt;
  }
  return HalfDepthwise::Make(lowering_.problem());
}

Location PlanBuilder::InChannelsLast(const Tensor& tensor) {
  const TensorDescriptor wanted = ChannelsLast(tensor.descriptor);
  if (wanted == tensor.descriptor) return tensor.location;
  for (const auto& [source, copy] : channels_last_) {
    if (source == tensor.location) return copy.location;
  }
  const Location copy = program_.Allocate(*ByteSize(wanted));
  AddReorder(Reorder::Make(tensor.descriptor, wanted), tensor.location, copy);
  channels_last_.emplace_back(tensor.location, Tensor{wanted, copy});
  return copy;
}

void PlanBuilder::AddHalfDepthwise(
    const std::shared_ptr<const HalfDepthwise>& depthwise,
    const Convolution& conv) {
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ",
                  NameOf(conv.pass), "=half_depthwise/nxc");
  if (conv.pass == Pass::kBackwardWeight) {
    AddHalfDepthwiseWeight(depthwise, conv);
  } else {
    AddHalfDepthwiseActivation(depthwise, conv);
  }
  FinishSink(conv);
}

void PlanBuilder::AddHalfDepthwiseActivation(
    const std::shared_ptr<const HalfDepthwise>& depthwise,
    const Convolution& conv) {
  const bool forward = conv.pass == Pass::kForward;
  const PassTensors& tensors = conv.tensors;
  const TensorDescriptor packed = KernelFirst(tensors.weight.descriptor);
  const Location weight = program_.Allocate(*ByteSize(packed));
  AddReorder(Reorder::Make(tensors.weight.descriptor, packed),
             tensors.weight.location, weight);
  const Location source = InChannelsLast(forward ? tensors.data : tensors.out);
  const Tensor& result = forward ? tensors.out : tensors.data;
  const TensorDescriptor written = ChannelsLast(result.descriptor);
  const bool in_place = written == result.descriptor;
  const Location target =
      in_place ? result.location : program_.Allocate(*ByteSize(written));
  program_.AddComputeStep({source}, [=, threads = threads_,
                                     has_bias = tensors.bias_dtype.has_value(),
                                     bias =
                                         tensors.bias](const Memory& memory) {
    const void* from = memory.Read(source);
    const auto* weights = static_cast<const float*>(memory.Read(weight));
    const auto* biases =
        has_bias ? static_cast<const float*>(memory.Read(bias)) : nullptr;
    void* to = memory.Write(target);
    const int64_t items =
        forward ? depthwise->forward_items() : depthwise->backward_data_items();
    ParallelFor(threads, items, 1, [&](int, int64_t begin, int64_t end) {
      if (forward) {
        depthwise->Forward(from, weights, biases, written.dtype, to, begin,
                           end);
      } else {
        depthwise->BackwardData(weights, from, written.dtype, to, begin, end);
      }
    });
  });
  if (!in_place) {
    AddReorder(Reorder::Make(written, result.descriptor), target,
               result.location);
  }
}

void PlanBuilder::AddHalfDepthwiseWeight(
    const std::shared_ptr<const HalfDepthwise>& depthwise,
    const Convolution& conv) {
  const Tensor& result = conv.tensors.weight;
  const Location data = InChannelsLast(conv.tensors.data);
  const Location grad = InChannelsLast(conv.tensors.out);
  const int64_t items = depthwise->backward_weight_items();
  const int64_t count = depthwise->sum_count();
  const int parts = PartCount(threads_, items, 1);
  const Location sums = program_.Allocate(parts * count * kFloatBytes);
  program_.AddComputeStep({data, grad}, [=, threads = threads_](
                                            const Memory& memory) {
    auto* all = static_cast<float*>(memory.Write(sums));
    ParallelFor(threads, items, 1, [&](int part, int64_t begin, int64_t end) {
      float* own = all + part * count;
      std::fill_n(own, count, 0.0f);
      depthwise->BackwardWeight(memory.Read(data), memory.Read(grad), own,
                                begin, end);
    });
    for (int part = 1; part < parts; ++part) {
      const float* more = all + part * count;
      for (int64_t i = 0; i < count; ++i) all[i] += more[i];
    }
  });
  const TensorDescriptor summed = KernelFirst(result.descriptor);
  AddReorder(Reorder::Make(summed, result.descriptor), sums, result.location);
  if (!FusesGradBias()) return;
  const ResultRequest* bias = operation_.result(Result::kGradBias);
  const Location bias_location =
      ResultTensor(bias - operation_.results.data()).location;
  program_.AddHostStep(
      {},
      [=, dtype = bias->descriptor.dtype, channels = lowering_.problem().groups,
       from = sums.At(*ByteSize(summed))](const Memory& memory) {
        ConvertRun(DataType::kF32, memory.Read(from), dtype,
                   memory.Write(bias_location), channels);
      });
}

}  // namespace convgrad::onednn
