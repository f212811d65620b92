#include "server/memory/sliced_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// Backends expect it (RunBuffers).
constexpr int64_t kAlignment = 64;

int64_t Add(int64_t a, int64_t b) { return std::min(kUncountableBytes, a + b); }

// Returns what one slice of the tensors that have a batch takes.
int64_t SliceCapacity(const BatchSlices& slices, const TensorUses& uses) {
  int64_t bytes = 0;
  for (const TensorUse& use : uses) {
    if (!use.has_batch) continue;
    bytes = AddCapacity(bytes, slices.SliceBytes(*use.tensor));
  }
  return bytes;
}

}  // namespace

void SlicedTensors::SetBindings(const BatchSlices& slices) {
  slices_ = &slices;
  for (const TensorUse& use : slices.operation().OperandUses()) {
    operands_.push_back({use, nullptr, {}});
  }
  for (const TensorUse& use : slices.operation().ResultUses()) {
    results_.push_back({use, nullptr, {}});
  }
}

absl::StatusOr<std::byte*> SlicedTensors::Take(int64_t size, BufferPool* pool) {
  ASSIGN_OR_RETURN(Buffer buffer, pool->Take(size));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

absl::Status SlicedTensors::BindWindows(const BatchSlices& slices,
                                        RunBuffers whole, CallMemory* memory) {
  SetBindings(slices);
  has_windows_ = true;
  for (size_t i = 0; i < operands_.size(); ++i) {
    operands_[i].whole =
        static_cast<std::byte*>(const_cast<void*>(whole.operands[i]));
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    results_[i].whole = static_cast<std::byte*>(whole.results[i]);
  }
  std::vector<Binding*> copied;
  int64_t bytes = SliceSums::CapacityFor(slices);
  for (auto* bindings : {&operands_, &results_}) {
    for (Binding& binding : *bindings) {
      if (!binding.use.has_batch) continue;
      const int64_t size = slices.SliceBytes(*binding.use.tensor);
      if (size % kAlignment == 0) continue;
      copied.push_back(&binding);
      bytes = AddCapacity(bytes, size);
    }
  }
  ASSIGN_OR_RETURN(reservation_, memory->budget.TryReserve(bytes));
  for (Binding* binding : copied) {
    const int64_t size = slices.SliceBytes(*binding->use.tensor);
    ASSIGN_OR_RETURN(std::byte* const copy, Take(size, &memory->pool));
    binding->slots = {copy};
  }
  return sums_.Take(slices, &memory->pool);
}

int64_t SlicedTensors::SlotBytes(const BatchSlices& slices) {
  const TensorUses operands = slices.operation().OperandUses();
  int64_t bytes = SliceSums::CapacityFor(slices);
  for (const TensorUse& use : operands) {
    if (use.tensor == nullptr || use.has_batch) continue;
    bytes = AddCapacity(bytes, CountableBytes(*use.tensor));
  }
  const TensorUses results = slices.operation().ResultUses();
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    bytes = Add(bytes, SliceCapacity(slices, operands));
    bytes = Add(bytes, SliceCapacity(slices, results));
  }
  return bytes;
}

absl::Status SlicedTensors::BindSlots(const BatchSlices& slices,
                                      const std::shared_ptr<CallMemory>& memory,
                                      Reservation* reservation) {
  SetBindings(slices);
  RETURN_IF_ERROR(BindOperandSlots(&memory->pool));
  for (auto& slot : result_slots_) {
    ASSIGN_OR_RETURN(slot, BindResultSlot(memory, reservation));
  }
  return sums_.Take(slices, &memory->pool);
}

absl::Status SlicedTensors::BindOperandSlots(BufferPool* pool) {
  for (Binding& binding : operands_) {
    const TensorUse& use = binding.use;
    if (use.tensor == nullptr) continue;
    if (!use.has_batch) {
      ASSIGN_OR_RETURN(binding.whole, Take(CountableBytes(*use.tensor), pool));
      continue;
    }
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      ASSIGN_OR_RETURN(std::byte* const place,
                       Take(slices_->SliceBytes(*use.tensor), pool));
      binding.slots.push_back(place);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<LentBuffers>> SlicedTensors::BindResultSlot(
    const std::shared_ptr<CallMemory>& memory, Reservation* reservation) {
  auto lent = std::make_shared<LentBuffers>();
  lent->memory = memory;
  lent->reservation = reservation->Split(
      SliceCapacity(*slices_, slices_->operation().ResultUses()));
  for (Binding& binding : results_) {
    if (!binding.use.has_batch) continue;
    ASSIGN_OR_RETURN(
        Buffer buffer,
        memory->pool.Take(slices_->SliceBytes(*binding.use.tensor)));
    binding.slots.push_back(buffer.data());
    lent->buffers.push_back(std::move(buffer));
  }
  return lent;
}

ByteRange SlicedTensors::RangeOf(const Binding& binding, int64_t slice) const {
  return slices_->RangeOf(*binding.use.tensor, slice);
}

std::byte* SlicedTensors::PlaceOf(const Binding& binding, int64_t slice) const {
  if (!binding.slots.empty()) {
    return binding.slots[slice % std::ssize(binding.slots)];
  }
  if (!binding.use.has_batch || binding.whole == nullptr) return binding.whole;
  return binding.whole + RangeOf(binding, slice).begin;
}

std::byte* SlicedTensors::OperandByte(size_t position, int64_t slice,
                                      int64_t offset) const {
  const Binding& operand = operands_[position];
  if (operand.use.has_batch) offset -= RangeOf(operand, slice).begin;
  return PlaceOf(operand, slice) + offset;
}

RunBuffers SlicedTensors::Begin(int64_t slice) {
  RunBuffers buffers(operands_.size());
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Binding& binding = operands_[i];
    std::byte* const place = PlaceOf(binding, slice);
    if (binding.whole != nullptr && !binding.slots.empty()) {
      const ByteRange range = RangeOf(binding, slice);
      std::copy_n(binding.whole + range.begin, range.size(), place);
    }
    buffers.operands[i] = place;
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    buffers.results.push_back(results_[i].use.has_batch
                                  ? PlaceOf(results_[i], slice)
                                  : sums_.AddendFor(i, slice));
  }
  return buffers;
}

void SlicedTensors::End(int64_t slice) {
  for (const Binding& binding : results_) {
    if (binding.whole == nullptr || binding.slots.empty()) continue;
    const ByteRange range = RangeOf(binding, slice);
    std::copy_n(PlaceOf(binding, slice), range.size(),
                binding.whole + range.begin);
  }
  sums_.Add(slice);
  if (slice + 1 < slices_->count() || !has_windows_) return;
  for (const SliceSums::Total& total : sums_.TakeTotals()) {
    const Binding& result = results_[total.position];
    std::memcpy(result.whole, total.buffer.data(),
                CountableBytes(*result.use.tensor));
  }
}

std::vector<SlicedTensors::ReadyResult> SlicedTensors::ReadyResultsOf(
    int64_t slice) const {
  std::vector<ReadyResult> ready;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].use.has_batch) continue;
    ready.push_back(
        {i, RangeOf(results_[i], slice), PlaceOf(results_[i], slice)});
  }
  return ready;
}

std::shared_ptr<LentBuffers> SlicedTensors::TakeTotals(
    const std::shared_ptr<CallMemory>& memory, Reservation* reservation,
    std::vector<ReadyResult>* ready) {
  auto lent = std::make_shared<LentBuffers>();
  lent->memory = memory;
  int64_t capacity = 0;
  for (SliceSums::Total& total : sums_.TakeTotals()) {
    const TensorDescriptor& result = *results_[total.position].use.tensor;
    ready->push_back(
        {total.position, {0, CountableBytes(result)}, total.buffer.data()});
    capacity += BufferPool::CapacityFor(total.buffer.size());
    lent->buffers.push_back(std::move(total.buffer));
  }
  lent->reservation = reservation->Split(capacity);
  return lent;
}

}  // namespace convgrad
