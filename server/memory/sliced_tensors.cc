#include "server/memory/sliced_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// The alignment that backends require (RunBuffers).
constexpr int64_t kAlignment = 64;

int64_t Add(int64_t a, int64_t b) { return std::min(kUncountableBytes, a + b); }

bool IsAligned(int64_t size) { return size % kAlignment == 0; }

// Returns the bytes for the slices of tensors with a batch axis: kSlots slices
// of a tensor that isn't in memory, and a copy of one slice of a tensor in
// memory whose slices aren't aligned.
int64_t SliceCapacity(const BatchSlices& slices, const TensorUses& uses,
                      const std::vector<TensorPlace>& places) {
  int64_t bytes = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].has_batch) continue;
    const int64_t size = slices.SliceBytes(*uses[i].tensor);
    int64_t count = SlicedTensors::kSlots;
    if (places[i].in_memory()) count = IsAligned(size) ? 0 : 1;
    for (; count > 0; --count) bytes = AddCapacity(bytes, size);
  }
  return bytes;
}

}  // namespace

void SlicedTensors::SetBindings(const BatchSlices& slices,
                                TensorPlaces places) {
  slices_ = &slices;
  const auto bind = [](const TensorUses& uses, std::vector<TensorPlace>* from,
                       std::vector<Binding>* to) {
    from->resize(uses.size());
    for (size_t i = 0; i < uses.size(); ++i) {
      to->push_back({uses[i], std::move((*from)[i]), {}});
    }
  };
  bind(slices.operation().OperandUses(), &places.operands, &operands_);
  bind(slices.operation().ResultUses(), &places.results, &results_);
}

absl::StatusOr<std::byte*> SlicedTensors::Take(int64_t size, BufferPool* pool) {
  ASSIGN_OR_RETURN(Buffer buffer, pool->Take(size));
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

absl::Status SlicedTensors::BindCopies(BufferPool* pool) {
  for (auto* bindings : {&operands_, &results_}) {
    for (Binding& binding : *bindings) {
      if (!binding.use.has_batch || !binding.place.in_memory()) continue;
      const int64_t size = slices_->SliceBytes(*binding.use.tensor);
      if (IsAligned(size)) continue;
      ASSIGN_OR_RETURN(std::byte* const copy, Take(size, pool));
      binding.slots = {copy};
    }
  }
  return absl::OkStatus();
}

absl::Status SlicedTensors::BindWindows(const BatchSlices& slices,
                                        const RunBuffers& whole,
                                        const MemoryBudget::Holder& holder,
                                        CallMemory* memory) {
  // The caller keeps the whole as long as this, so its owner is a dummy.
  static const auto kOwner = std::make_shared<const int>(0);
  TensorPlaces places;
  for (const void* operand : whole.operands) {
    auto* data = static_cast<std::byte*>(const_cast<void*>(operand));
    places.operands.push_back({nullptr, kOwner, data});
  }
  for (void* result : whole.results) {
    places.results.push_back(
        {nullptr, kOwner, static_cast<std::byte*>(result)});
  }
  const int64_t bytes = SlotBytes(slices, places);
  SetBindings(slices, std::move(places));
  ASSIGN_OR_RETURN(reservation_, memory->budget.TryReserve(bytes, holder));
  RETURN_IF_ERROR(BindCopies(&memory->pool));
  return sums_.Take(slices, &memory->pool);
}

int64_t SlicedTensors::SlotBytes(const BatchSlices& slices,
                                 const TensorPlaces& places) {
  const TensorUses operands = slices.operation().OperandUses();
  int64_t bytes = SliceSums::CapacityFor(slices);
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorUse& use = operands[i];
    if (use.tensor == nullptr || use.has_batch) continue;
    if (places.operands[i].in_memory()) continue;
    bytes = AddCapacity(bytes, CountableBytes(*use.tensor));
  }
  bytes = Add(bytes, SliceCapacity(slices, operands, places.operands));
  return Add(bytes, SliceCapacity(slices, slices.operation().ResultUses(),
                                  places.results));
}

absl::Status SlicedTensors::BindSlots(const BatchSlices& slices,
                                      TensorPlaces places,
                                      const std::shared_ptr<CallMemory>& memory,
                                      Reservation* reservation) {
  SetBindings(slices, std::move(places));
  RETURN_IF_ERROR(BindCopies(&memory->pool));
  RETURN_IF_ERROR(BindOperandSlots(&memory->pool));
  for (auto& slot : result_slots_) {
    ASSIGN_OR_RETURN(slot, BindResultSlot(memory, reservation));
  }
  return sums_.Take(slices, &memory->pool);
}

absl::Status SlicedTensors::BindOperandSlots(BufferPool* pool) {
  for (Binding& binding : operands_) {
    const TensorUse& use = binding.use;
    if (use.tensor == nullptr || binding.place.in_memory()) continue;
    if (!use.has_batch) {
      ASSIGN_OR_RETURN(binding.place.data,
                       Take(CountableBytes(*use.tensor), pool));
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

absl::StatusOr<std::shared_ptr<ReservedBuffers>> SlicedTensors::BindResultSlot(
    const std::shared_ptr<CallMemory>& memory, Reservation* reservation) {
  auto slot = std::make_shared<ReservedBuffers>();
  slot->memory = memory;
  int64_t capacity = 0;
  for (Binding& binding : results_) {
    if (!binding.use.has_batch || binding.place.in_memory()) continue;
    const int64_t size = slices_->SliceBytes(*binding.use.tensor);
    capacity = AddCapacity(capacity, size);
    ASSIGN_OR_RETURN(Buffer buffer, memory->pool.Take(size));
    binding.slots.push_back(buffer.data());
    slot->buffers.push_back(std::move(buffer));
  }
  slot->reservation = reservation->Split(capacity);
  return slot;
}

ByteRange SlicedTensors::RangeOf(const Binding& binding, int64_t slice) const {
  return slices_->RangeOf(*binding.use.tensor, slice);
}

std::byte* SlicedTensors::PlaceOf(const Binding& binding, int64_t slice) const {
  if (!binding.slots.empty()) {
    return binding.slots[slice % std::ssize(binding.slots)];
  }
  std::byte* const whole = binding.place.data;
  if (!binding.use.has_batch || whole == nullptr) return whole;
  return whole + RangeOf(binding, slice).begin;
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
    if (binding.place.data != nullptr && !binding.slots.empty()) {
      const ByteRange range = RangeOf(binding, slice);
      std::copy_n(binding.place.data + range.begin, range.size(), place);
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
    if (!binding.place.in_memory() || binding.slots.empty()) continue;
    const ByteRange range = RangeOf(binding, slice);
    std::copy_n(PlaceOf(binding, slice), range.size(),
                binding.place.data + range.begin);
  }
  sums_.Add(slice);
  if (slice + 1 == slices_->count()) Finish();
}

void SlicedTensors::Finish() {
  for (SliceSums::Total& total : sums_.TakeTotals()) {
    const Binding& result = results_[total.position];
    if (result.place.in_memory()) {
      std::memcpy(result.place.data, total.buffer.data(),
                  CountableBytes(*result.use.tensor));
    } else {
      totals_.push_back(std::move(total));
    }
  }
  for (const Binding& result : results_) {
    if (result.place.addend == nullptr) continue;
    AddAddend(result.place, 0,
              CountableBytes(*result.use.tensor) / int64_t{sizeof(float)});
  }
}

std::vector<SlicedTensors::ReadyResult> SlicedTensors::ReadyResultsOf(
    int64_t slice) const {
  std::vector<ReadyResult> ready;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].use.has_batch || results_[i].place.in_memory()) continue;
    ready.push_back(
        {i, RangeOf(results_[i], slice), PlaceOf(results_[i], slice)});
  }
  return ready;
}

std::shared_ptr<ReservedBuffers> SlicedTensors::TakeTotals(
    const std::shared_ptr<CallMemory>& memory, Reservation* reservation,
    std::vector<ReadyResult>* ready) {
  auto totals = std::make_shared<ReservedBuffers>();
  totals->memory = memory;
  int64_t capacity = 0;
  for (SliceSums::Total& total : totals_) {
    const TensorDescriptor& result = *results_[total.position].use.tensor;
    ready->push_back(
        {total.position, {0, CountableBytes(result)}, total.buffer.data()});
    capacity += BufferPool::CapacityFor(total.buffer.size());
    totals->buffers.push_back(std::move(total.buffer));
  }
  totals->reservation = reservation->Split(capacity);
  return totals;
}

}  // namespace convgrad
