#include "server/rpc/convolutions/stream_input.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status Missing(const FrameCoverage& coverage, absl::string_view what) {
  return InvalidField(
      Reason::kMissing, "frames",
      absl::StrCat(coverage.received_bytes(), " bytes of ", what,
                   " at the end of the stream"),
      absl::StrCat(coverage.range().size(), " bytes, ", coverage.range().begin,
                   " to ", coverage.range().end, " of the tensor"));
}

}  // namespace

StreamInput::StreamInput(const BatchSlices& slices, const Kept& kept)
    : slices_(slices), uses_(slices.operation().OperandUses()), kept_(kept) {
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (uses_[i].tensor == nullptr || uses_[i].has_batch || kept_[i]) continue;
    whole_[i] = FrameCoverage({0, ByteSize(*uses_[i].tensor).value_or(0)});
  }
  OpenSlice(0);
  OpenSlice(1);
  while (first_ < slices_.count() && IsComplete(first_)) ++first_;
}

void StreamInput::OpenSlice(int64_t slice) {
  if (slice >= slices_.count()) return;
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (!uses_[i].has_batch || kept_[i]) continue;
    open_[slice % 2][i] =
        FrameCoverage(slices_.RangeOf(*uses_[i].tensor, slice));
  }
}

bool StreamInput::IsComplete(int64_t slice) const {
  for (const FrameCoverage& coverage : open_[slice % 2]) {
    if (!coverage.complete()) return false;
  }
  return true;
}

absl::string_view StreamInput::IncompleteWhole() const {
  for (Operand which : kAllOperands) {
    if (!whole_[PositionOf(which)].complete()) return NameOf(which);
  }
  return "";
}

bool StreamInput::whole_operands_complete() const {
  return IncompleteWhole().empty();
}

absl::StatusOr<int64_t> StreamInput::SliceOf(const OperandPiece& piece) const {
  const TensorUse& use = uses_[PositionOf(piece.which)];
  if (!use.has_batch) return kNoSlice;
  const TensorDescriptor& tensor = *use.tensor;
  const int64_t slice = piece.bytes.begin / slices_.SliceBytes(tensor);
  const ByteRange range = slices_.RangeOf(tensor, slice);
  if (piece.bytes.end <= range.end) return slice;
  return OutOfRange("frame.byte_offset",
                    absl::StrCat("bytes ", piece.bytes.begin, " to ",
                                 piece.bytes.end, " of ", NameOf(piece.which)),
                    absl::StrCat("bytes of one slice; slice ", slice,
                                 " ends at ", range.end));
}

absl::Status StreamInput::CheckOpen(int64_t slice, Operand which) const {
  if (slice < first_) {
    return InvalidField(
        Reason::kDuplicate, "frame.byte_offset",
        absl::StrCat("slice ", slice, " of ", NameOf(which),
                     ", which came before"),
        first_ == slices_.count()
            ? std::string("nothing more: every byte has come")
            : absl::StrCat("slice ", first_, " or ", first_ + 1));
  }
  if (slice > first_ + 1) {
    return OutOfRange(
        "frame.byte_offset",
        absl::StrCat("slice ", slice, " of ", NameOf(which)),
        absl::StrCat("slice ", first_, " or ", first_ + 1,
                     ": the first that isn't complete, or the next"));
  }
  if (slice < 2 || whole_operands_complete()) return absl::OkStatus();
  return InvalidField(
      Reason::kMissing, absl::StrCat("operands.", IncompleteWhole()),
      absl::StrCat("slice ", slice, " of ", NameOf(which), " before all of it"),
      "all of it before the third slice");
}

absl::StatusOr<int64_t> StreamInput::Accept(const OperandPiece& piece) {
  if (kept_[PositionOf(piece.which)]) {
    return InvalidField(Reason::kDuplicate, "frame.which", NameOf(piece.which),
                        "an operand that isn't kept, whose bytes are there");
  }
  ASSIGN_OR_RETURN(const int64_t slice, SliceOf(piece));
  if (slice != kNoSlice) RETURN_IF_ERROR(CheckOpen(slice, piece.which));
  Coverage& coverage = slice == kNoSlice ? whole_ : open_[slice % 2];
  RETURN_IF_ERROR(
      coverage[PositionOf(piece.which)].Add(piece.bytes, NameOf(piece.which)));
  while (first_ < slices_.count() && IsComplete(first_)) {
    OpenSlice(first_ + 2);
    ++first_;
  }
  return slice;
}

absl::Status StreamInput::CheckComplete() const {
  for (Operand which : kAllOperands) {
    const FrameCoverage& whole = whole_[PositionOf(which)];
    if (!whole.complete()) return Missing(whole, NameOf(which));
  }
  if (first_ == slices_.count()) return absl::OkStatus();
  for (Operand which : kAllOperands) {
    const FrameCoverage& open = open_[first_ % 2][PositionOf(which)];
    if (open.complete()) continue;
    return Missing(open, absl::StrCat("slice ", first_, " of ", NameOf(which)));
  }
  return absl::OkStatus();
}

}  // namespace convgrad
