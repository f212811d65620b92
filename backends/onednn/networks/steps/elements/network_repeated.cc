#include "backends/onednn/networks/steps/elements/network_repeated.h"

#include "backends/core/program/operators/products.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/kernels/tokens/broadcast_sums.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {

BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder) {
  const NetworkTensor from = builder->Value(value, Form::kRows);
  const DataType dtype = like.blocks.dtype;
  NetworkTensor rows =
      TensorLike(like.dims, dtype, Form::kRows, builder->options().block);
  rows.buffer = builder->schedule().AddBuffer(rows.blocks.bytes());
  PhysicalLayout layout;
  const Dims strides = BroadcastStrides(from.dims, like.dims);
  for (size_t i = 0; i < strides.size(); ++i) {
    layout.axes.push_back({.extent = like.dims[i], .stride = strides[i]});
  }
  AddReorder(Reorder::Make(layout, dtype, PhysicalLayoutOf(rows), dtype),
             from.buffer, rows.buffer, &builder->schedule());
  return InForm(rows, like.form, builder->options().block, &builder->schedule())
      .buffer;
}

void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder) {
  const NetworkTensor from = InForm(
      gradient, Form::kRows, builder->options().block, &builder->schedule());
  const BufferId to = builder->NewGradient(value, Form::kRows);
  builder->schedule().Add(
      {.kind = "gradient sum",
       .reads = {from.buffer},
       .writes = {to},
       .function = [=, dims = builder->Like(value, Form::kRows).dims](
                       const RunContext& context) {
         SumBroadcast(from.dims, context.At(from.buffer), dims, context.At(to),
                      from.blocks.dtype, [&](int64_t count, auto part) {
                        context.ForParts(count, part);
                      });
       }});
}

}  // namespace convgrad::onednn
