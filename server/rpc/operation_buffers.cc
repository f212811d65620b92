#include "server/rpc/operation_buffers.h"

#include <algorithm>
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

// Returns which payloads the operation reads, by index.
std::vector<bool> NeededPayloads(const DecodedOperation& decoded,
                                 size_t payloads) {
  std::vector<bool> needed(payloads, false);
  for (Operand operand : kAllOperands) {
    if (!decoded.operation.operand(operand)) continue;
    needed[decoded.payload_index[static_cast<size_t>(operand)]] = true;
  }
  return needed;
}

int64_t SizeOf(const ResultRequest& result) {
  return *ByteSize(result.descriptor);
}

}  // namespace

OperationBuffers::OperationBuffers(std::shared_ptr<CallMemory> memory)
    : memory_(std::move(memory)) {}

absl::Status OperationBuffers::Raise(const DecodedOperation& decoded,
                                     const std::vector<PayloadView>& payloads,
                                     Reservation* reservation) const {
  // Descriptors are validated: each size is below 2^63, but not their sum.
  int64_t needed = kCallOverheadBytes;
  auto add = [&needed](int64_t size) {
    const int64_t limit = int64_t{1} << 60;
    const int64_t capacity =
        size > limit ? limit : BufferPool::CapacityFor(size);
    needed = std::min(limit, needed + capacity);
  };
  const std::vector<bool> is_needed = NeededPayloads(decoded, payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    if (is_needed[i]) add(payloads[i].size());
  }
  for (const ResultRequest& result : decoded.operation.results) {
    add(SizeOf(result));
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

absl::Status OperationBuffers::CopyOperands(
    const DecodedOperation& decoded, std::vector<PayloadView>& payloads) {
  const std::vector<bool> is_needed = NeededPayloads(decoded, payloads.size());
  operands_.resize(payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    PayloadView payload = std::move(payloads[i]);
    if (!is_needed[i]) continue;
    ASSIGN_OR_RETURN(operands_[i], memory_->pool.Take(payload.size()));
    copied_bytes_ += payload.size();
    payload.MoveTo(operands_[i].data());
  }
  for (Operand operand : kAllOperands) {
    if (!decoded.operation.operand(operand)) continue;
    const size_t place = static_cast<size_t>(operand);
    run_buffers_.operands[place] =
        operands_[decoded.payload_index[place]].data();
  }
  return absl::OkStatus();
}

absl::Status OperationBuffers::TakeResultBuffers(
    const ConvOperation& operation) {
  for (const ResultRequest& result : operation.results) {
    ASSIGN_OR_RETURN(Buffer buffer, memory_->pool.Take(SizeOf(result)));
    run_buffers_.results.push_back(buffer.data());
    results_.push_back(std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status OperationBuffers::Fill(const DecodedOperation& decoded,
                                    std::vector<PayloadView> payloads,
                                    Reservation* reservation) {
  RETURN_IF_ERROR(Raise(decoded, payloads, reservation));
  RETURN_IF_ERROR(CopyOperands(decoded, payloads));
  RETURN_IF_ERROR(TakeResultBuffers(decoded.operation));
  // The message is gone; what it was paid for with may now serve others.
  int64_t held = kCallOverheadBytes;
  for (const Buffer& buffer : operands_) {
    held += BufferPool::CapacityFor(buffer.size());
  }
  for (const Buffer& buffer : results_) {
    held += BufferPool::CapacityFor(buffer.size());
  }
  if (held < reservation->bytes()) reservation->ShrinkTo(held);
  return absl::OkStatus();
}

int64_t OperationBuffers::result_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : results_) bytes += buffer.size();
  return bytes;
}

std::vector<grpc::Slice> OperationBuffers::TakeResults(
    Reservation* reservation) {
  operands_.clear();
  std::vector<grpc::Slice> slices;
  for (Buffer& buffer : results_) {
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
  results_.clear();
  run_buffers_ = {};
  reservation->ShrinkTo(0);
  return slices;
}

void OperationBuffers::Clear() {
  operands_.clear();
  results_.clear();
  run_buffers_ = {};
}

}  // namespace convgrad
