#include "server/rpc/stream_buffers.h"

#include <algorithm>
#include <utility>

#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

int64_t Add(int64_t a, int64_t b) { return std::min(kUncountableBytes, a + b); }

// What the cut tensors of slice 0, the largest, take.
struct SliceCapacity {
  int64_t operands = 0;
  int64_t results = 0;
};

SliceCapacity CapacityOfSlice(const BatchSlices& slices) {
  const ConvOperation& operation = slices.operation();
  SliceCapacity capacity;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor || !slices.IsCut(which)) continue;
    capacity.operands =
        AddCapacity(capacity.operands, slices.RangeOf(*tensor, 0).size());
  }
  for (const ResultRequest& request : operation.results) {
    if (!slices.IsCut(request.which)) continue;
    capacity.results = AddCapacity(
        capacity.results, slices.RangeOf(request.descriptor, 0).size());
  }
  return capacity;
}

}  // namespace

StreamBuffers::StreamBuffers(std::shared_ptr<CallMemory> memory)
    : memory_(std::move(memory)) {}

int64_t StreamBuffers::ScratchBytesFor(const BatchSlices& slices) {
  const ConvOperation part = slices.SliceOperation(0);
  int64_t bytes = 0;
  const auto add = [&bytes](TensorDescriptor tensor) {
    tensor.dtype = DataType::kF32;
    bytes = AddCapacity(bytes, CountableBytes(tensor));
  };
  for (const auto& tensor : part.operands) {
    if (tensor) add(*tensor);
  }
  for (const ResultRequest& request : part.results) add(request.descriptor);
  return bytes;
}

int64_t StreamBuffers::BytesFor(const BatchSlices& slices) {
  const SliceCapacity slice = CapacityOfSlice(slices);
  int64_t bytes = kCallOverheadBytes + kMaxFrameBytes;
  for (Operand which : kAllOperands) {
    const auto& tensor = slices.operation().operand(which);
    if (!tensor || slices.IsCut(which)) continue;
    bytes = AddCapacity(bytes, CountableBytes(*tensor));
  }
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    bytes = Add(bytes, Add(slice.operands, slice.results));
  }
  bytes = Add(bytes, GradientSums::CapacityFor(slices));
  return Add(bytes, ScratchBytesFor(slices));
}

absl::Status StreamBuffers::Take(const BatchSlices& slices,
                                 Reservation* reservation) {
  slices_ = &slices;
  RETURN_IF_ERROR(TakeOperands());
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    RETURN_IF_ERROR(TakeSlot(slot, reservation));
  }
  return sums_.Take(slices, &memory_->pool);
}

absl::Status StreamBuffers::TakeOperands() {
  for (Operand which : kAllOperands) {
    const auto& tensor = slices_->operation().operand(which);
    if (!tensor) continue;
    const auto place = static_cast<size_t>(which);
    if (!slices_->IsCut(which)) {
      ASSIGN_OR_RETURN(whole_[place],
                       memory_->pool.Take(CountableBytes(*tensor)));
      continue;
    }
    const int64_t size = slices_->RangeOf(*tensor, 0).size();
    for (OperandBuffers& slot : operands_) {
      ASSIGN_OR_RETURN(slot[place], memory_->pool.Take(size));
    }
  }
  return absl::OkStatus();
}

absl::Status StreamBuffers::TakeSlot(int64_t slot, Reservation* reservation) {
  auto lent = std::make_shared<LentResults>();
  lent->memory = memory_;
  lent->reservation = reservation->Split(CapacityOfSlice(*slices_).results);
  for (const ResultRequest& request : slices_->operation().results) {
    const bool is_cut = slices_->IsCut(request.which);
    const int64_t size =
        is_cut ? slices_->RangeOf(request.descriptor, 0).size() : 0;
    ASSIGN_OR_RETURN(Buffer buffer, memory_->pool.Take(size));
    lent->buffers.push_back(std::move(buffer));
  }
  results_[slot] = std::move(lent);
  return absl::OkStatus();
}

void StreamBuffers::Land(const OperandPiece& piece, int64_t slice,
                         PayloadView payload) {
  const auto place = static_cast<size_t>(piece.which);
  if (!slices_->IsCut(piece.which)) {
    payload.MoveTo(whole_[place].data() + piece.bytes.begin);
    return;
  }
  const TensorDescriptor& tensor = *slices_->operation().operand(piece.which);
  const int64_t start = slices_->RangeOf(tensor, slice).begin;
  payload.MoveTo(operands_[slice % kSlots][place].data() + piece.bytes.begin -
                 start);
}

RunBuffers StreamBuffers::ForJob(int64_t slice) const {
  RunBuffers buffers;
  for (Operand which : kAllOperands) {
    if (!slices_->operation().operand(which)) continue;
    const auto place = static_cast<size_t>(which);
    const OperandBuffers& source =
        slices_->IsCut(which) ? operands_[slice % kSlots] : whole_;
    buffers.operands[place] = source[place].data();
  }
  const size_t count = slices_->operation().results.size();
  for (size_t i = 0; i < count; ++i) {
    const bool is_cut = slices_->IsCut(slices_->operation().results[i].which);
    buffers.results.push_back(is_cut ? slot(slice)->buffers[i].data()
                                     : sums_.AddendFor(i, slice));
  }
  return buffers;
}

std::vector<StreamBuffers::ReadyResult> StreamBuffers::ReadyResultsOf(
    int64_t slice) const {
  std::vector<ReadyResult> ready;
  const std::vector<ResultRequest>& results = slices_->operation().results;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!slices_->IsCut(results[i].which)) continue;
    ready.push_back({results[i].which,
                     slices_->RangeOf(results[i].descriptor, slice),
                     slot(slice)->buffers[i].data()});
  }
  return ready;
}

std::shared_ptr<LentResults> StreamBuffers::TakeTotals(
    Reservation* reservation, std::vector<ReadyResult>* ready) {
  auto lent = std::make_shared<LentResults>();
  lent->memory = memory_;
  int64_t capacity = 0;
  for (GradientSums::Total& total : sums_.TakeTotals()) {
    const ResultRequest& request = slices_->operation().results[total.index];
    ready->push_back({request.which,
                      {0, CountableBytes(request.descriptor)},
                      total.buffer.data()});
    capacity += BufferPool::CapacityFor(total.buffer.size());
    lent->buffers.push_back(std::move(total.buffer));
  }
  lent->reservation = reservation->Split(capacity);
  return lent;
}

void StreamBuffers::Clear() {
  whole_ = {};
  operands_ = {};
  results_ = {};
  sums_.Clear();
}

}  // namespace convgrad
