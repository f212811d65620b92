#include "server/rpc/convolutions/frame_coverage.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {

absl::Status FrameCoverage::Add(const ByteRange& frame,
                                absl::string_view tensor) {
  const auto next = pieces_.lower_bound(frame.begin);
  const auto before = next == pieces_.begin() ? next : std::prev(next);
  const bool has_before = next != pieces_.begin();
  if ((has_before && before->second > frame.begin) ||
      (next != pieces_.end() && next->first < frame.end)) {
    return InvalidField(
        Reason::kDuplicate, "frame.byte_offset",
        absl::StrCat("bytes ", frame.begin, " to ", frame.end, " of ", tensor,
                     ", some of which came before"),
        "each byte once");
  }
  ByteRange merged = frame;
  if (has_before && before->second == frame.begin) {
    merged.begin = before->first;
  }
  if (next != pieces_.end() && next->first == frame.end) {
    merged.end = next->second;
    pieces_.erase(next);
  }
  pieces_[merged.begin] = merged.end;
  received_bytes_ += frame.size();
  if (pieces_.size() <= kMaxPieces) return absl::OkStatus();
  return InvalidField(
      Reason::kLimitExceeded, "frame.byte_offset",
      absl::StrCat("more than ", kMaxPieces, " separate pieces of ", tensor),
      "frames that follow one another");
}

}  // namespace convgrad
