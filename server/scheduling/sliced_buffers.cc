#include "server/scheduling/sliced_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// Backends expect it (RunBuffers).
constexpr int64_t kAlignment = 64;

// Returns the bytes of an aligned copy of a slice, 0 if none is needed.
int64_t CopySize(const BatchSlices& slices, const TensorDescriptor& tensor) {
  const int64_t size = slices.RangeOf(tensor, 0).size();
  return size % kAlignment == 0 ? 0 : size;
}

}  // namespace

int64_t SlicedBuffers::CapacityFor(const BatchSlices& slices) const {
  int64_t bytes = GradientSums::CapacityFor(slices);
  const ConvOperation& operation = slices.operation();
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor || !slices.IsCut(which)) continue;
    bytes = AddCapacity(bytes, CopySize(slices, *tensor));
  }
  for (const ResultRequest& request : operation.results) {
    if (!slices.IsCut(request.which)) continue;
    bytes = AddCapacity(bytes, CopySize(slices, request.descriptor));
  }
  return bytes;
}

absl::Status SlicedBuffers::TakeCopy(const TensorDescriptor& tensor,
                                     Place* place) {
  place->tensor = &tensor;
  ASSIGN_OR_RETURN(place->copy, memory_->pool.Take(CopySize(*slices_, tensor)));
  return absl::OkStatus();
}

absl::Status SlicedBuffers::Take(const BatchSlices& slices, RunBuffers whole,
                                 CallMemory* memory) {
  slices_ = &slices;
  whole_ = std::move(whole);
  memory_ = memory;
  ASSIGN_OR_RETURN(reservation_,
                   memory_->budget.TryReserve(CapacityFor(slices)));
  const ConvOperation& operation = slices.operation();
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor || !slices.IsCut(which)) continue;
    RETURN_IF_ERROR(TakeCopy(*tensor, &operands_[static_cast<size_t>(which)]));
  }
  results_.resize(operation.results.size());
  for (size_t i = 0; i < results_.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    if (!slices.IsCut(request.which)) continue;
    RETURN_IF_ERROR(TakeCopy(request.descriptor, &results_[i]));
  }
  return sums_.Take(slices, &memory_->pool);
}

RunBuffers SlicedBuffers::Begin(int64_t slice) {
  RunBuffers buffers;
  buffers.operands = whole_.operands;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Place& place = operands_[i];
    if (place.tensor == nullptr) continue;
    const ByteRange range = slices_->RangeOf(*place.tensor, slice);
    const auto* data =
        static_cast<const std::byte*>(whole_.operands[i]) + range.begin;
    if (place.copy.size() > 0) {
      std::copy_n(data, range.size(), place.copy.data());
      data = place.copy.data();
    }
    buffers.operands[i] = data;
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    const Place& place = results_[i];
    if (place.tensor == nullptr) {
      buffers.results.push_back(sums_.AddendFor(i, slice));
    } else if (place.copy.size() > 0) {
      buffers.results.push_back(place.copy.data());
    } else {
      buffers.results.push_back(static_cast<std::byte*>(whole_.results[i]) +
                                slices_->RangeOf(*place.tensor, slice).begin);
    }
  }
  return buffers;
}

void SlicedBuffers::End(int64_t slice) {
  for (size_t i = 0; i < results_.size(); ++i) {
    const Place& place = results_[i];
    if (place.tensor == nullptr || place.copy.size() == 0) continue;
    const ByteRange range = slices_->RangeOf(*place.tensor, slice);
    std::copy_n(place.copy.data(), range.size(),
                static_cast<std::byte*>(whole_.results[i]) + range.begin);
  }
  sums_.Add(slice);
  if (slice + 1 < slices_->count()) return;
  sums_.Finish();
  for (const GradientSums::Total& total : sums_.TakeTotals()) {
    const TensorDescriptor& result =
        slices_->operation().results[total.index].descriptor;
    std::memcpy(whole_.results[total.index], total.buffer.data(),
                CountableBytes(result));
  }
}

}  // namespace convgrad
