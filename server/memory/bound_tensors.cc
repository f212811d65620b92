#include "server/memory/bound_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// The bytes that are copied before the message frees the slices that it has
// copied.
constexpr int64_t kRoundBytes = int64_t{8} << 20;
// The bytes of one part of a plain copy, large enough to be worth a thread.
constexpr int64_t kPartBytes = 256 << 10;

// Memory of one piece. `owner` keeps it.
class WholeBytes final : public ScatteredBytes {
 public:
  WholeBytes(TensorPlace place, int64_t size)
      : place_(std::move(place)), size_(size) {}

  int64_t size() const override { return size_; }
  void CopyRange(int64_t offset, absl::Span<std::byte> to) const override {
    std::copy_n(place_.data + offset, to.size(), to.data());
  }
  void Release(int64_t /*offset*/) override {}

 private:
  const TensorPlace place_;
  const int64_t size_;
};

// Copies `size` bytes to `to` in parts. copy(offset, bytes) copies the bytes at
// `offset`.
void CopyInParts(int64_t size, std::byte* to, const Backend& backend,
                 int threads,
                 absl::FunctionRef<void(int64_t, absl::Span<std::byte>)> copy) {
  backend.ParallelFor(threads, CeilDiv(size, kPartBytes),
                      [&](int64_t begin, int64_t end) {
                        const int64_t first = begin * kPartBytes;
                        const int64_t last = std::min(end * kPartBytes, size);
                        copy(first, absl::MakeSpan(to + first, last - first));
                      });
}

// Adds the addend of `place` to its result of `size` bytes.
void Add(const TensorPlace& place, int64_t size, const Backend& backend,
         int threads) {
  const int64_t count = size / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kPart = kPartBytes / sizeof(float);
  backend.ParallelFor(
      threads, CeilDiv(count, kPart), [&](int64_t begin, int64_t end) {
        AddAddend(place, begin * kPart, std::min(end * kPart, count));
      });
}

}  // namespace

BoundTensors::BoundTensors(std::shared_ptr<CallMemory> memory)
    : memory_(std::move(memory)) {}

void BoundTensors::KeepOperand(size_t position, const TensorDescriptor& tensor,
                               TensorPlace place) {
  const int64_t size = *ByteSize(tensor);
  if (place.is_readable_as(tensor.dtype)) {
    constant_ids_[position] = place.constant_id;
    run_buffers_.operands[position] = place.data;
    owners_[position] = std::move(place.owner);
    return;
  }
  if (size == 0) return;
  if (place.in_memory()) {
    place.message = std::make_shared<WholeBytes>(place, size);
  }
  for (Arrival& arrival : arrivals_) {
    if (arrival.bytes != place.message) continue;
    arrival.operands.push_back(position);
    return;
  }
  arrivals_.push_back({std::move(place.message), {position}, {}});
}

absl::Status BoundTensors::Bind(const Operation& operation, TensorPlaces places,
                                Reservation* reservation) {
  const TensorUses operands = operation.OperandUses();
  run_buffers_ = RunBuffers(operands.size());
  owners_.resize(operands.size());
  constant_ids_.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].tensor == nullptr) continue;
    KeepOperand(i, *operands[i].tensor, std::move(places.operands[i]));
  }
  int64_t needed = kCallOverheadBytes;
  for (const Arrival& arrival : arrivals_) {
    needed = AddCapacity(needed, arrival.bytes->size());
  }
  const TensorUses results = operation.ResultUses();
  for (size_t i = 0; i < results.size(); ++i) {
    TensorPlace& place = places.results[i];
    const int64_t size = *ByteSize(*results[i].tensor);
    run_buffers_.results.push_back(place.is_usable() ? place.data : nullptr);
    if (!place.is_usable()) needed = AddCapacity(needed, size);
    if (!place.is_kept) sent_bytes_ += size;
    results_.push_back({std::move(place), size, {}});
  }
  const int64_t capacity = memory_->budget.capacity_bytes();
  if (needed <= reservation->bytes()) {
    reservation->ShrinkTo(needed);
  } else if (needed <= capacity) {
    RETURN_IF_ERROR(reservation->TryGrow(needed - reservation->bytes()));
  } else {
    return LimitExceeded(
        "operation", absl::StrCat(needed, " bytes of operands and results"),
        absl::StrCat("at most ", capacity,
                     ", the server's memory budget for calls"));
  }
  reservation_ = reservation;
  for (size_t i = 0; i < results_.size(); ++i) {
    BoundResult& result = results_[i];
    if (result.place.is_usable()) continue;
    ASSIGN_OR_RETURN(result.buffer, memory_->pool.Take(result.size));
    run_buffers_.results[i] = result.buffer.data();
  }
  return absl::OkStatus();
}

bool BoundTensors::AreConstant(absl::Span<const size_t> positions) const {
  return std::all_of(
      positions.begin(), positions.end(), [this](size_t position) {
        return owners_[position] == nullptr || constant_ids_[position] != 0;
      });
}

std::vector<uint64_t> BoundTensors::ConstantIds(
    absl::Span<const size_t> positions) const {
  std::vector<uint64_t> ids;
  for (const size_t position : positions) {
    if (constant_ids_[position] == 0) return {};
    ids.push_back(constant_ids_[position]);
  }
  return ids;
}

absl::StatusOr<RunBuffers> BoundTensors::BringIn(const Backend& backend,
                                                 int threads) {
  for (Arrival& arrival : arrivals_) {
    if (arrival.bytes == nullptr) continue;
    ScatteredBytes& bytes = *arrival.bytes;
    ASSIGN_OR_RETURN(arrival.copy, memory_->pool.Take(bytes.size()));
    for (int64_t first = 0; first < bytes.size(); first += kRoundBytes) {
      const int64_t size = std::min(kRoundBytes, bytes.size() - first);
      CopyInParts(size, arrival.copy.data() + first, backend, threads,
                  [&](int64_t offset, absl::Span<std::byte> to) {
                    bytes.CopyRange(first + offset, to);
                  });
      bytes.Release(first + size);
    }
    copied_bytes_ += bytes.size();
    arrival.bytes.reset();
    for (size_t position : arrival.operands) {
      run_buffers_.operands[position] = arrival.copy.data();
    }
  }
  return run_buffers_;
}

void BoundTensors::BringOut(const Backend& backend, int threads) {
  for (const BoundResult& result : results_) {
    if (result.place.addend != nullptr) {
      Add(result.place, result.size, backend, threads);
    }
    if (!result.place.in_memory() || result.place.is_usable()) continue;
    CopyInParts(result.size, result.place.data, backend, threads,
                [&](int64_t offset, absl::Span<std::byte> to) {
                  std::copy_n(result.buffer.data() + offset, to.size(),
                              to.data());
                });
    copied_bytes_ += result.size;
  }
}

int64_t BoundTensors::payload_bytes() const {
  int64_t bytes = 0;
  for (const BoundResult& result : results_) {
    if (!result.place.in_memory()) bytes = SaturatingAdd(bytes, result.size);
  }
  return bytes;
}

std::vector<SharedBytes> BoundTensors::TakeResults() {
  std::vector<SharedBytes> taken;
  for (BoundResult& result : results_) {
    if (result.place.in_memory()) continue;
    auto owner = std::make_shared<ReservedBuffers>();
    owner->memory = memory_;
    const int64_t capacity = BufferPool::CapacityFor(result.size);
    owner->reservation = reservation_->Split(capacity);
    const std::byte* data = result.buffer.data();
    owner->buffers.push_back(std::move(result.buffer));
    taken.push_back({data, result.size, std::move(owner)});
  }
  Clear();
  reservation_->ShrinkTo(0);
  return taken;
}

void BoundTensors::Clear() {
  arrivals_.clear();
  results_.clear();
  run_buffers_ = RunBuffers();
  owners_.clear();
  constant_ids_.clear();
}

}  // namespace convgrad
