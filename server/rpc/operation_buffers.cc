#include "server/rpc/operation_buffers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"

namespace convgrad {
namespace {

// A result on its way through gRPC. Members in the order that they go last.
struct SentResult {
  std::shared_ptr<CallMemory> memory;
  Reservation reservation;
  Buffer buffer;
};

// What is copied before the slices that it came in are let go.
constexpr int64_t kRoundBytes = int64_t{8} << 20;
// Of a payload that is copied as it is; enough to be worth a thread's while.
constexpr int64_t kPartBytes = 256 << 10;

// True if a backend can use the tensor in its region.
bool InPlace(const std::optional<RegionTensor>& tensor) {
  return tensor && tensor->IsAligned();
}

int64_t SizeOf(const ResultRequest& result) {
  return *ByteSize(result.descriptor);
}

}  // namespace

OperationBuffers::OperationBuffers(std::shared_ptr<CallMemory> memory)
    : memory_(std::move(memory)) {}

void OperationBuffers::KeepNeeded(const DecodedOperation& decoded,
                                  std::vector<PayloadView> payloads) {
  std::vector<std::vector<Operand>> readers(payloads.size());
  for (Operand operand : kAllOperands) {
    const int index = decoded.payload_index[static_cast<size_t>(operand)];
    if (!decoded.operation.operand(operand) || index < 0) continue;
    readers[index].push_back(operand);
  }
  for (size_t i = 0; i < payloads.size(); ++i) {
    if (readers[i].empty()) continue;
    arrivals_.push_back({std::move(payloads[i]), std::move(readers[i]), {}});
  }
}

absl::Status OperationBuffers::Raise(const DecodedOperation& decoded,
                                     Reservation* reservation) const {
  int64_t needed = kCallOverheadBytes;
  for (const Arrival& arrival : arrivals_) {
    needed = AddCapacity(needed, arrival.payload.size());
  }
  for (Operand operand : kAllOperands) {
    const auto& tensor = regions_.operands[static_cast<size_t>(operand)];
    if (!decoded.operation.operand(operand) || !tensor) continue;
    if (!InPlace(tensor)) needed = AddCapacity(needed, tensor->size);
  }
  for (size_t i = 0; i < decoded.operation.results.size(); ++i) {
    if (InPlace(regions_.results[i])) continue;
    needed = AddCapacity(needed, SizeOf(decoded.operation.results[i]));
  }
  const int64_t missing = needed - reservation->bytes();
  if (missing <= 0) return absl::OkStatus();
  if (needed > memory_->budget.capacity_bytes()) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     {Reason::kLimitExceeded, "operation",
                      absl::StrCat(needed, " bytes of operands and results"),
                      absl::StrCat("at most ", memory_->budget.capacity_bytes(),
                                   ", the server's memory budget for calls")});
  }
  ASSIGN_OR_RETURN(Reservation more, memory_->budget.TryReserve(missing));
  reservation->Merge(std::move(more));
  return absl::OkStatus();
}

absl::Status OperationBuffers::PlaceRegionOperands(
    const ConvOperation& operation) {
  for (Operand operand : kAllOperands) {
    const auto place = static_cast<size_t>(operand);
    const std::optional<RegionTensor>& tensor = regions_.operands[place];
    if (!operation.operand(operand) || !tensor) continue;
    const void*& data = run_buffers_.operands[place];
    if (tensor->IsAligned()) {
      data = tensor->data;
      continue;
    }
    ASSIGN_OR_RETURN(Buffer copy, memory_->pool.Take(tensor->size));
    std::copy_n(tensor->data, tensor->size, copy.data());
    copied_bytes_ += tensor->size;
    data = copy.data();
    region_copies_.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

bool OperationBuffers::OwnsOperand(Operand operand) const {
  const auto& tensor = regions_.operands[static_cast<size_t>(operand)];
  return !tensor || !tensor->IsAligned();
}

absl::Status OperationBuffers::PlaceResults(const ConvOperation& operation) {
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const int64_t size = SizeOf(operation.results[i]);
    result_bytes_ += size;
    Buffer& buffer = results_.emplace_back();
    if (InPlace(regions_.results[i])) {
      run_buffers_.results.push_back(regions_.results[i]->data);
      continue;
    }
    ASSIGN_OR_RETURN(buffer, memory_->pool.Take(size));
    run_buffers_.results.push_back(buffer.data());
  }
  return absl::OkStatus();
}

absl::Status OperationBuffers::Accept(const DecodedOperation& decoded,
                                      RequestBytes request,
                                      Reservation* reservation) {
  regions_ = std::move(request.regions);
  KeepNeeded(decoded, std::move(request.payloads));
  RETURN_IF_ERROR(Raise(decoded, reservation));
  RETURN_IF_ERROR(PlaceRegionOperands(decoded.operation));
  RETURN_IF_ERROR(PlaceResults(decoded.operation));
  // What wasn't needed of the message is gone; what it was paid for with may
  // now serve others.
  int64_t held = kCallOverheadBytes;
  for (const Arrival& arrival : arrivals_) {
    held += BufferPool::CapacityFor(arrival.payload.size());
  }
  for (const auto* buffers : {&region_copies_, &results_}) {
    for (const Buffer& buffer : *buffers) {
      held += BufferPool::CapacityFor(buffer.size());
    }
  }
  if (held < reservation->bytes()) reservation->ShrinkTo(held);
  reservation_ = reservation;
  return absl::OkStatus();
}

const ScatteredReorder* OperationBuffers::IfAffordable(
    const ScatteredReorder* intake, int64_t payload_bytes) {
  if (intake == nullptr) return nullptr;
  const int64_t more = BufferPool::CapacityFor(intake->destination_bytes()) -
                       BufferPool::CapacityFor(payload_bytes);
  if (more <= 0) return intake;
  absl::StatusOr<Reservation> reservation = memory_->budget.TryReserve(more);
  if (!reservation.ok()) return nullptr;
  reservation_->Merge(*std::move(reservation));
  return intake;
}

absl::Status OperationBuffers::Copy(const ScatteredReorder* intake,
                                    const Backend& backend, int threads,
                                    Arrival* arrival) {
  PayloadView& payload = arrival->payload;
  const int64_t size = payload.size();
  ASSIGN_OR_RETURN(
      arrival->copy,
      memory_->pool.Take(intake ? intake->destination_bytes() : size));
  std::byte* copy = arrival->copy.data();
  const int64_t parts =
      intake ? intake->part_count() : CeilDiv(size, kPartBytes);
  const auto offset_of = [&](int64_t part) {
    return intake ? intake->SourceOffset(part)
                  : std::min(part * kPartBytes, size);
  };
  const auto read = [&](int64_t offset, absl::Span<std::byte> to) {
    payload.CopyRange(offset, to);
  };
  for (int64_t first = 0, end = 0; first < parts; first = end) {
    while (end < parts && offset_of(end) - offset_of(first) < kRoundBytes) {
      ++end;
    }
    backend.ParallelFor(threads, end - first, [&](int64_t part, int64_t last) {
      part += first;
      last += first;
      if (intake) return intake->Run(read, copy, part, last);
      const int64_t from = offset_of(part);
      read(from, absl::MakeSpan(copy + from, offset_of(last) - from));
    });
    payload.Release(offset_of(end));
  }
  copied_bytes_ += size;
  payload = PayloadView();
  return absl::OkStatus();
}

absl::StatusOr<RunBuffers> OperationBuffers::BringIn(const Plan* plan,
                                                     const Backend& backend,
                                                     int threads) {
  for (Arrival& arrival : arrivals_) {
    const bool may_differ = plan != nullptr && arrival.operands.size() == 1;
    const ScatteredReorder* intake =
        IfAffordable(may_differ ? plan->intake(arrival.operands[0]) : nullptr,
                     arrival.payload.size());
    RETURN_IF_ERROR(Copy(intake, backend, threads, &arrival));
    for (Operand operand : arrival.operands) {
      const auto place = static_cast<size_t>(operand);
      run_buffers_.operands[place] = arrival.copy.data();
      run_buffers_.is_taken_in[place] = intake != nullptr;
    }
  }
  return run_buffers_;
}

std::vector<grpc::Slice> OperationBuffers::TakeResults(
    Reservation* reservation) {
  arrivals_.clear();
  region_copies_.clear();
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < results_.size(); ++i) {
    Buffer& buffer = results_[i];
    if (regions_.results[i]) {
      std::copy_n(buffer.data(), buffer.size(), regions_.results[i]->data);
      copied_bytes_ += buffer.size();
      continue;
    }
    if (buffer.size() == 0) {
      slices.emplace_back();
      continue;
    }
    const int64_t capacity = BufferPool::CapacityFor(buffer.size());
    auto sent = std::make_shared<SentResult>(
        SentResult{memory_, reservation->Split(capacity), std::move(buffer)});
    const Buffer& sent_buffer = sent->buffer;
    slices.push_back(
        SliceOver(sent_buffer.data(), sent_buffer.size(), std::move(sent)));
  }
  Clear();
  reservation->ShrinkTo(0);
  return slices;
}

void OperationBuffers::Clear() {
  arrivals_.clear();
  region_copies_.clear();
  results_.clear();
  run_buffers_ = {};
  regions_ = {};
}

}  // namespace convgrad
