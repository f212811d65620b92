#include "backends/onednn/convolutions/onednn_f16_depthwise_steps.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

using Depthwise = std::shared_ptr<const F16Depthwise>;

// Returns `tensor`, or a buffer for it in a layout that F16Depthwise supports.
Tensor RowMajor(const Tensor& tensor, Schedule* schedule) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  if (IsRowMajor(descriptor.layout)) return tensor;
  return NewTensor(PlainDescriptor(descriptor, descriptor.dtype), schedule);
}

// Does nothing if `to` is `from`.
void AddMove(const Tensor& from, const Tensor& to, Schedule* schedule) {
  if (from.location != to.location) AddReorder(from, to, schedule);
}

Tensor ReadRowMajor(const Tensor& tensor, Schedule* schedule) {
  Tensor row_major = RowMajor(tensor, schedule);
  AddMove(tensor, row_major, schedule);
  return row_major;
}

// Returns the descriptor that F16Depthwise reads and sums: kernel, then
// channels.
TensorDescriptor KernelFirst(const Tensor& weight) {
  return {DataType::kF32, Layout::kXIO, weight.descriptor.dims};
}

Tensor ReadKernelFirst(const Tensor& weight, Schedule* schedule) {
  Tensor copy = NewTensor(KernelFirst(weight), schedule);
  AddReorder(weight, copy, schedule);
  return copy;
}

F16Depthwise::Operand Read(const RunContext& context, const Tensor& tensor) {
  return {context.At(tensor.location), tensor.descriptor.layout};
}

F16Depthwise::Result Write(const RunContext& context, const Tensor& tensor) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  return {context.At(tensor.location), descriptor.layout, descriptor.dtype};
}

void AddForward(const Depthwise& depthwise, const PlacedPass& pass, int threads,
                Schedule* schedule) {
  const Tensor weight = ReadKernelFirst(pass.weight, schedule);
  const Tensor data = ReadRowMajor(pass.data, schedule);
  const Tensor out = RowMajor(pass.out, schedule);
  const int64_t items = depthwise->forward_items();
  const int64_t own_bytes = depthwise->scratch_bytes();
  const Location scratch =
      schedule->AddBuffer(PartCount(threads, items, 1) * own_bytes);
  const Location bias = pass.bias ? pass.bias->location : Location();
  const auto run = [=](const RunContext& context) {
    const F16Depthwise::ForwardTensors all = {
        .data = Read(context, data),
        .weight = context.Read<float>(weight.location),
        .bias = context.Read<float>(bias),
        .out = Write(context, out)};
    std::byte* own = context.At(scratch);
    ParallelFor(context.threads(), items, 1,
                [&](int part, int64_t begin, int64_t end) {
                  depthwise->Forward(all, own + part * own_bytes, begin, end);
                });
  };
  std::vector<Location> reads = {data.location, weight.location};
  if (pass.bias) reads.push_back(bias);
  schedule->Add("", reads, {out.location, scratch}, run);
  AddMove(out, pass.out, schedule);
}

// Locations of the backward passes' tensors. Tensors that only a pass that
// isn't requested needs are absent.
struct BackwardPlaces {
  Tensor grad;
  std::optional<Tensor> weight, grad_data;  // for grad_data
  std::optional<Tensor> data, grad_weight;  // for grad_weight
  Location sums;                            // per part, in f64
  Location scratch;
  int parts;
};

void RunBackward(const F16Depthwise& depthwise, const BackwardPlaces& at,
                 const RunContext& context) {
  F16Depthwise::BackwardTensors all;
  all.grad = Read(context, at.grad);
  if (at.grad_data) {
    all.weight = context.Read<float>(at.weight->location);
    all.grad_data = Write(context, *at.grad_data);
  }
  if (at.data) {
    all.data = Read(context, *at.data);
    all.sums = context.Write<double>(at.sums);
  }
  std::byte* own = context.At(at.scratch);
  const int64_t count = depthwise.sum_count();
  ParallelFor(context.threads(), depthwise.backward_items(), 1,
              [&](int part, int64_t begin, int64_t end) {
                F16Depthwise::BackwardTensors mine = all;
                if (at.data) {
                  mine.sums += part * count;
                  std::fill_n(mine.sums, count, 0.0);
                }
                depthwise.Backward(mine, own + part * depthwise.scratch_bytes(),
                                   begin, end);
              });
  if (!at.data) return;
  auto* gradients = context.Write<float>(at.grad_weight->location);
  for (int64_t i = 0; i < count; ++i) {
    double sum = all.sums[i];
    for (int part = 1; part < at.parts; ++part) {
      sum += all.sums[part * count + i];
    }
    gradients[i] = static_cast<float>(sum);
  }
}

// Appends the conversion of a bias's gradient from f32 at `sums`.
void AddConversion(const Location& sums, const Tensor& bias,
                   Schedule* schedule) {
  schedule->Add(
      kLayoutKind, {sums}, {bias.location}, [=](const RunContext& context) {
        ConvertRun(DataType::kF32, context.At(sums), bias.descriptor.dtype,
                   context.At(bias.location), ElementCount(bias.descriptor));
      });
}

// A pass that isn't requested is null.
void AddBackward(const Depthwise& depthwise, const PlacedPass* data_pass,
                 const PlacedPass* weight_pass, int threads,
                 Schedule* schedule) {
  BackwardPlaces at;
  at.grad = ReadRowMajor((data_pass ? data_pass : weight_pass)->out, schedule);
  at.parts = PartCount(threads, depthwise->backward_items(), 1);
  at.scratch = schedule->AddBuffer(at.parts * depthwise->scratch_bytes());
  std::vector<Location> reads = {at.grad.location}, writes = {at.scratch};
  if (data_pass != nullptr) {
    at.weight = ReadKernelFirst(data_pass->weight, schedule);
    at.grad_data = RowMajor(data_pass->data, schedule);
    reads.push_back(at.weight->location);
    writes.push_back(at.grad_data->location);
  }
  if (weight_pass != nullptr) {
    at.data = ReadRowMajor(weight_pass->data, schedule);
    reads.push_back(at.data->location);
    const int64_t count = depthwise->sum_count();
    at.sums = schedule->AddBuffer(at.parts * count * int64_t{sizeof(double)});
    at.grad_weight =
        Tensor{KernelFirst(weight_pass->weight),
               schedule->AddBuffer(count * int64_t{sizeof(float)})};
    writes.insert(writes.end(), {at.sums, at.grad_weight->location});
  }
  schedule->Add("", reads, writes, [=](const RunContext& context) {
    RunBackward(*depthwise, at, context);
  });
  if (data_pass != nullptr) AddMove(*at.grad_data, data_pass->data, schedule);
  if (weight_pass == nullptr) return;
  AddMove(*at.grad_weight, weight_pass->weight, schedule);
  if (!weight_pass->bias) return;
  // The bias gradient follows the weight gradient.
  const int64_t bytes = *ByteSize(at.grad_weight->descriptor);
  AddConversion(at.grad_weight->location.At(bytes), *weight_pass->bias,
                schedule);
}

}  // namespace

void AddF16Depthwise(const F16Depthwise& depthwise,
                     absl::Span<const PlacedPass> passes, int threads,
                     Schedule* schedule) {
  const auto shared = std::make_shared<const F16Depthwise>(depthwise);
  const auto find = [&](Pass pass) {
    const auto found =
        std::find_if(passes.begin(), passes.end(),
                     [&](const PlacedPass& p) { return p.pass == pass; });
    return found == passes.end() ? nullptr : &*found;
  };
  if (const PlacedPass* forward = find(Pass::kForward)) {
    AddForward(shared, *forward, threads, schedule);
    return;
  }
  AddBackward(shared, find(Pass::kBackwardData), find(Pass::kBackwardWeight),
              threads, schedule);
}

}  // namespace convgrad::onednn
