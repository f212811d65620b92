#include "server/scheduling/gradient_sums.h"

#include <algorithm>
#include <utility>

#include "backends/core/status.h"
#include "backends/kernels/element_convert.h"
#include "backends/kernels/reorder.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

int64_t SpareSize(const TensorDescriptor& addend,
                  const TensorDescriptor& result) {
  return std::max(CountableBytes(addend), CountableBytes(result));
}

}  // namespace

int64_t GradientSums::CapacityFor(const BatchSlices& slices) {
  const ConvOperation part = slices.SliceOperation(0);
  int64_t capacity = 0;
  for (size_t i = 0; i < part.results.size(); ++i) {
    const ResultRequest& result = slices.operation().results[i];
    if (slices.IsCut(result.which)) continue;
    const TensorDescriptor& addend = part.results[i].descriptor;
    capacity = AddCapacity(capacity, CountableBytes(addend));
    capacity = AddCapacity(capacity, SpareSize(addend, result.descriptor));
  }
  return capacity;
}

absl::Status GradientSums::Take(const BatchSlices& slices, BufferPool* pool) {
  const ConvOperation part = slices.SliceOperation(0);
  for (size_t i = 0; i < part.results.size(); ++i) {
    const ResultRequest& request = slices.operation().results[i];
    if (slices.IsCut(request.which)) continue;
    Sum sum{i, request, part.results[i].descriptor, {}, {}};
    ASSIGN_OR_RETURN(sum.sum, pool->Take(CountableBytes(sum.addend)));
    ASSIGN_OR_RETURN(sum.spare,
                     pool->Take(SpareSize(sum.addend, request.descriptor)));
    sums_.push_back(std::move(sum));
  }
  return absl::OkStatus();
}

void* GradientSums::AddendFor(size_t index, int64_t slice) const {
  for (const Sum& sum : sums_) {
    if (sum.index != index) continue;
    return slice == 0 ? sum.sum.data() : sum.spare.data();
  }
  return nullptr;
}

void GradientSums::Add(int64_t slice) {
  if (slice == 0) return;
  for (Sum& sum : sums_) {
    auto* total = reinterpret_cast<float*>(sum.sum.data());
    const auto* addend = reinterpret_cast<const float*>(sum.spare.data());
    const int64_t count = ElementCount(sum.addend);
    for (int64_t i = 0; i < count; ++i) total[i] += addend[i];
  }
}

void GradientSums::Finish() {
  for (Sum& sum : sums_) {
    auto* total = reinterpret_cast<float*>(sum.sum.data());
    const int64_t count = ElementCount(sum.addend);
    const float scale = sum.request.scale;
    if (scale != 1) {
      for (int64_t i = 0; i < count; ++i) total[i] *= scale;
    }
    if (sum.request.which == Result::kGradWeight) {
      Reorder::Make(sum.addend, sum.request.descriptor)
          .Run(total, sum.spare.data());
    } else {
      ConvertRun(DataType::kF32, total, sum.request.descriptor.dtype,
                 sum.spare.data(), count);
    }
  }
}

std::vector<GradientSums::Total> GradientSums::TakeTotals() {
  std::vector<Total> totals;
  for (Sum& sum : sums_) {
    totals.push_back({sum.index, std::move(sum.spare)});
  }
  sums_.clear();
  return totals;
}

}  // namespace convgrad
