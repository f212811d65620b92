#include "server/rpc/operation_buffers.h"

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

// Returns which payloads the operation reads, by index.
std::vector<bool> NeededPayloads(const DecodedOperation& decoded,
                                 size_t payloads) {
  std::vector<bool> needed(payloads, false);
  for (Operand operand : kAllOperands) {
    const int index = decoded.payload_index[static_cast<size_t>(operand)];
    if (decoded.operation.operand(operand) && index >= 0) needed[index] = true;
  }
  return needed;
}

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

absl::Status OperationBuffers::Raise(const DecodedOperation& decoded,
                                     const std::vector<PayloadView>& payloads,
                                     Reservation* reservation) const {
  int64_t needed = kCallOverheadBytes;
  const std::vector<bool> is_needed = NeededPayloads(decoded, payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    if (is_needed[i]) needed = AddCapacity(needed, payloads[i].size());
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

absl::Status OperationBuffers::CopyPayloads(const DecodedOperation& decoded,
                                            std::vector<PayloadView> payloads) {
  const std::vector<bool> is_needed = NeededPayloads(decoded, payloads.size());
  operands_.resize(payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    PayloadView payload = std::move(payloads[i]);
    if (!is_needed[i]) continue;
    ASSIGN_OR_RETURN(operands_[i], memory_->pool.Take(payload.size()));
    copied_bytes_ += payload.size();
    payload.MoveTo(operands_[i].data());
  }
  return absl::OkStatus();
}

absl::Status OperationBuffers::PlaceOperands(const DecodedOperation& decoded) {
  for (Operand operand : kAllOperands) {
    if (!decoded.operation.operand(operand)) continue;
    const size_t place = static_cast<size_t>(operand);
    const std::optional<RegionTensor>& tensor = regions_.operands[place];
    const void*& data = run_buffers_.operands[place];
    if (!tensor) {
      data = operands_[decoded.payload_index[place]].data();
    } else if (tensor->IsAligned()) {
      data = tensor->data;
    } else {
      ASSIGN_OR_RETURN(Buffer copy, memory_->pool.Take(tensor->size));
      std::copy_n(tensor->data, tensor->size, copy.data());
      copied_bytes_ += tensor->size;
      data = copy.data();
      operands_.push_back(std::move(copy));
    }
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

absl::Status OperationBuffers::Fill(const DecodedOperation& decoded,
                                    RequestBytes request,
                                    Reservation* reservation) {
  regions_ = std::move(request.regions);
  RETURN_IF_ERROR(Raise(decoded, request.payloads, reservation));
  RETURN_IF_ERROR(CopyPayloads(decoded, std::move(request.payloads)));
  RETURN_IF_ERROR(PlaceOperands(decoded));
  RETURN_IF_ERROR(PlaceResults(decoded.operation));
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

std::vector<grpc::Slice> OperationBuffers::TakeResults(
    Reservation* reservation) {
  operands_.clear();
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
  operands_.clear();
  results_.clear();
  run_buffers_ = {};
  regions_ = {};
}

}  // namespace convgrad
