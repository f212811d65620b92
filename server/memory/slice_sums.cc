#include "server/memory/slice_sums.h"

#include <algorithm>
#include <utility>

#include "backends/core/status.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/copies/reorder.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

int64_t SpareSize(const TensorDescriptor& addend,
                  const TensorDescriptor& result) {
  return std::max(CountableBytes(addend), CountableBytes(result));
}

}  // namespace

std::vector<SliceSums::Sum> SliceSums::SumsOf(const BatchSlices& slices) {
  std::vector<Sum> sums;
  const TensorUses results = slices.operation().ResultUses();
  const auto slice = slices.SliceOperation(0);
  const TensorUses addends = slice->ResultUses();
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].has_batch) continue;
    sums.push_back({i, results[i], *addends[i].tensor, {}, {}});
  }
  return sums;
}

int64_t SliceSums::CapacityFor(const BatchSlices& slices) {
  int64_t capacity = 0;
  for (const Sum& sum : SumsOf(slices)) {
    capacity = AddCapacity(capacity, CountableBytes(sum.addend));
    capacity = AddCapacity(capacity, SpareSize(sum.addend, *sum.result.tensor));
  }
  return capacity;
}

absl::Status SliceSums::Take(const BatchSlices& slices, BufferPool* pool) {
  slices_ = slices.count();
  sums_ = SumsOf(slices);
  for (Sum& sum : sums_) {
    ASSIGN_OR_RETURN(sum.sum, pool->Take(CountableBytes(sum.addend)));
    ASSIGN_OR_RETURN(sum.spare,
                     pool->Take(SpareSize(sum.addend, *sum.result.tensor)));
  }
  return absl::OkStatus();
}

void* SliceSums::AddendFor(size_t position, int64_t slice) const {
  for (const Sum& sum : sums_) {
    if (sum.position != position) continue;
    return slice == 0 ? sum.sum.data() : sum.spare.data();
  }
  return nullptr;
}

void SliceSums::Add(int64_t slice) {
  for (Sum& sum : sums_) {
    auto* total = reinterpret_cast<float*>(sum.sum.data());
    const auto* addend = reinterpret_cast<const float*>(sum.spare.data());
    const int64_t count = slice == 0 ? 0 : ElementCount(sum.addend);
    for (int64_t i = 0; i < count; ++i) total[i] += addend[i];
    if (slice + 1 == slices_) Finish(&sum);
  }
}

void SliceSums::Finish(Sum* sum) {
  auto* total = reinterpret_cast<float*>(sum->sum.data());
  const int64_t count = ElementCount(sum->addend);
  const float scale = sum->result.scale;
  if (scale != 1) {
    for (int64_t i = 0; i < count; ++i) total[i] *= scale;
  }
  const TensorDescriptor& result = *sum->result.tensor;
  if (result.layout == sum->addend.layout) {
    ConvertRun(DataType::kF32, total, result.dtype, sum->spare.data(), count);
  } else {
    Reorder::Make(sum->addend, result).Run(total, sum->spare.data());
  }
}

std::vector<SliceSums::Total> SliceSums::TakeTotals() {
  std::vector<Total> totals;
  for (Sum& sum : sums_) {
    totals.push_back({sum.position, std::move(sum.spare)});
  }
  sums_.clear();
  return totals;
}

}  // namespace convgrad
