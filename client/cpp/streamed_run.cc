#include "client/cpp/streamed_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "proto/codec/payload_message.h"

namespace convgrad {
namespace {

// Returns the operation without the operands that it doesn't read.
std::shared_ptr<const ConvOperation> Needed(ConvOperation operation) {
  DropUnneeded(&operation);
  return std::make_shared<const ConvOperation>(std::move(operation));
}

// Returns what is sent, in order: operands without a batch axis first, then the
// others slice by slice.
std::vector<OperandPiece> PiecesOf(const BatchSlices& slices) {
  std::vector<OperandPiece> pieces;
  const TensorUses uses = slices.operation().OperandUses();
  const auto add = [&](bool cut, int64_t slice) {
    for (Operand which : kAllOperands) {
      const auto& [tensor, has_batch, scale] = uses[PositionOf(which)];
      if (tensor == nullptr || has_batch != cut) continue;
      const ByteRange bytes = cut ? slices.RangeOf(*tensor, slice)
                                  : ByteRange{0, ByteSize(*tensor).value_or(0)};
      if (bytes.size() > 0) pieces.push_back({which, bytes});
    }
  };
  add(false, 0);
  for (int64_t slice = 0; slice < slices.count(); ++slice) add(true, slice);
  return pieces;
}

}  // namespace

StreamedRun::StreamedRun(const OperationCall& call, int64_t slice_items,
                         const BorrowedSlices& borrowed)
    : call_(call),
      operation_(Needed(call.operation)),
      slices_(StreamSlices(operation_, slice_items)),
      borrowed_(borrowed),
      to_send_(PiecesOf(slices_)),
      received_(call.operation.results.size(), 0) {}

absl::Status StreamedRun::Allocate() {
  for (const ResultRequest& wanted : operation_->results) {
    OperationResult result{wanted.which, wanted.descriptor, {}, {}};
    const size_t i = targets_.size();
    if (i < call_.destinations.size() &&
        call_.destinations[i].data() != nullptr) {
      targets_.push_back(call_.destinations[i]);
    } else {
      const int64_t bytes = ByteSize(wanted.descriptor).value_or(0);
      ASSIGN_OR_RETURN(result.data, AlignedBuffer::Allocate(bytes));
      targets_.emplace_back(result.data.data(), bytes);
    }
    result.bytes = targets_.back();
    reply_.results.push_back(std::move(result));
  }
  return absl::OkStatus();
}

std::optional<grpc::ByteBuffer> StreamedRun::NextMessage() {
  // The heads are small, so encoding can't fail.
  grpc::ByteBuffer message;
  if (sent_bytes_ == 0) {
    message = *JoinMessage(
        EncodeOpening(*operation_, OptionsOf(call_), slices_.items()), {});
  } else if (next_piece_ < to_send_.size()) {
    OperandPiece& piece = to_send_[next_piece_];
    const ByteRange bytes = FrameAt(piece.bytes, piece.bytes.begin);
    const auto operand = call_.operands[PositionOf(piece.which)];
    piece.bytes.begin = bytes.end;
    if (piece.bytes.size() == 0) ++next_piece_;
    message = *JoinMessage(
        EncodeFrame(piece.which, bytes.begin),
        {borrowed_.SliceOf(operand.subspan(bytes.begin, bytes.size()))});
  } else {
    return std::nullopt;
  }
  sent_bytes_ += static_cast<int64_t>(message.Length());
  return message;
}

absl::Status StreamedRun::Take(grpc::ByteBuffer* received) {
  reply_.received_bytes += static_cast<int64_t>(received->Length());
  v1::ConvStreamResponse message;
  ASSIGN_OR_RETURN(std::vector<PayloadView> payloads,
                   SplitReply(received, &message));
  if (end_) return BadReply("message", "one after the end", "none");
  if (message.has_frame()) {
    return TakeFrame(message.frame(), std::move(payloads));
  }
  if (!message.has_end()) return BadReply("part", "nothing", "frame or end");
  end_ = std::move(*message.mutable_end());
  return CheckEnd();
}

absl::Status StreamedRun::TakeFrame(const v1::ResultFrame& frame,
                                    std::vector<PayloadView> payloads) {
  size_t i = 0;
  while (i < reply_.results.size() &&
         DecodeResult(frame.which()) != reply_.results[i].which) {
    ++i;
  }
  if (i == reply_.results.size() || payloads.size() != 1) {
    return BadReply("frame.which", v1::Result_Name(frame.which()),
                    "a result that was asked for, with one payload");
  }
  const absl::Span<std::byte> target = targets_[i];
  const auto left = std::ssize(target) - received_[i];
  const int64_t size = payloads[0].size();
  if (frame.byte_offset() != received_[i] || size > left) {
    return BadReply(
        "frame.byte_offset",
        absl::StrCat(frame.byte_offset(), " with ", size, " bytes"),
        absl::StrCat(received_[i], " with at most ", left, " bytes"));
  }
  payloads[0].MoveTo(target.data() + received_[i]);
  received_[i] += size;
  return absl::OkStatus();
}

absl::Status StreamedRun::CheckEnd() const {
  const std::vector<ResultRequest>& wanted = operation_->results;
  if (end_->results_size() != static_cast<int>(wanted.size())) {
    return BadReply("results", absl::StrCat(end_->results_size()),
                    absl::StrCat(wanted.size()));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    RETURN_IF_ERROR(CheckNamed(end_->results(static_cast<int>(i)), wanted[i]));
    const auto size = std::ssize(targets_[i]);
    if (received_[i] == size) continue;
    return BadReply(NameOf(wanted[i].which),
                    absl::StrCat(received_[i], " bytes"), absl::StrCat(size));
  }
  return absl::OkStatus();
}

absl::StatusOr<OperationReply> StreamedRun::Finish() {
  if (!end_) return BadReply("message", "no end", "one at the end");
  reply_.report = std::move(*end_->mutable_report());
  reply_.sent_bytes = sent_bytes_;
  return std::move(reply_);
}

}  // namespace convgrad
