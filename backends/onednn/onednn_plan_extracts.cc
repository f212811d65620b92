// PlanBuilder's way to and from what a pass has of a caller's tensor: all of
// it, or what strides and windows leave, gathered and spread out again.
#include <memory>
#include <utility>

#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {

PlanBuilder::Extract PlanBuilder::ExtractOf(const Side& side) const {
  const auto& [descriptor, location] = side.tensor;
  if (!Crops(side.role)) return {PhysicalLayoutOf(descriptor), location};
  const StridedView view = ViewOf(side.role, descriptor);
  Extract extract;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    extract.layout.axes.push_back({view.dims[i], view.strides[i]});
  }
  extract.location = location.At(view.offset * ByteSizeOf(view.dtype));
  return extract;
}

bool PlanBuilder::HasStepsOnly(const Side& side) const {
  if (!Crops(side.role)) return false;
  const Dims& steps = lowering_.data_steps();
  const StridedView view = ViewOf(side.role, side.tensor.descriptor);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (view.dims[i + 2] * steps[i] != side.tensor.descriptor.dims[i + 2]) {
      return false;
    }
  }
  return true;
}

std::shared_ptr<const StrideGather> PlanBuilder::StrideGatherOf(
    const Side& side) const {
  const TensorDescriptor& tensor = side.tensor.descriptor;
  if (!HasStepsOnly(side) || tensor.layout != Layout::kNCX) return nullptr;
  auto every =
      StrideGather::Make(tensor.dtype, tensor.dims, lowering_.data_steps());
  if (!every) return nullptr;
  return std::make_shared<const StrideGather>(*std::move(every));
}

PlanBuilder::Extract PlanBuilder::AllocateDense(const Side& side) {
  TensorDescriptor dense = side.tensor.descriptor;
  dense.dims = ViewOf(side.role, dense).dims;
  return {PhysicalLayoutOf(dense), program_.Allocate(*ByteSize(dense))};
}

void PlanBuilder::AddRead(const Side& side, const Form& to,
                          Location destination) {
  const DataType dtype = side.tensor.descriptor.dtype;
  Extract from = ExtractOf(side);
  if (const auto every = StrideGatherOf(side)) {
    from = AllocateDense(side);
    program_.AddHostStep({side.tensor.location},
                         [=, threads = threads_, whole = side.tensor.location,
                          dense = from.location](const Memory& memory) {
                           ParallelFor(threads, every->planes(), 1,
                                       [&](int, int64_t begin, int64_t end) {
                                         every->Gather(memory.Read(whole),
                                                       memory.Write(dense),
                                                       begin, end);
                                       });
                         });
  }
  AddReorder(Reorder::Make(from.layout, dtype, to.layout, to.dtype),
             from.location, destination);
}

void PlanBuilder::AddWrite(Form from, Location source, const Side& side) {
  const TensorDescriptor& descriptor = side.tensor.descriptor;
  if (const auto every = StrideGatherOf(side)) {
    const Extract dense = AllocateDense(side);
    AddReorder(
        Reorder::Make(from.layout, from.dtype, dense.layout, descriptor.dtype),
        source, dense.location);
    program_.AddHostStep({}, [=, threads = threads_,
                              whole = side.tensor.location,
                              dense = dense.location](const Memory& memory) {
      ParallelFor(
          threads, every->planes(), 1, [&](int, int64_t begin, int64_t end) {
            every->Spread(memory.Read(dense), memory.Write(whole), begin, end);
          });
    });
    return;
  }
  Extract to = ExtractOf(side);
  if (HasStepsOnly(side)) {
    // Between the elements of the view lie axes of their own, of zeros but for
    // the first step.
    const Dims& steps = lowering_.data_steps();
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t stride = to.layout.axes[i + 2].stride / steps[i];
      from.layout.axes.push_back({1, stride});
      to.layout.axes.push_back({1, stride, 0, 0, 0, steps[i]});
    }
  } else if (Crops(side.role)) {
    AddZero(side.tensor.location, *ByteSize(descriptor));
  }
  AddReorder(
      Reorder::Make(from.layout, from.dtype, to.layout, descriptor.dtype),
      source, to.location);
}

}  // namespace convgrad::onednn
