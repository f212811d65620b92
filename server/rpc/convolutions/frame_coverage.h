// `FrameCoverage` records the bytes of a tensor that have come in frames.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/batch_slices.h"

namespace convgrad {

// `FrameCoverage` is thread-compatible.
class FrameCoverage {
 public:
  // The most separate pieces of a tensor, because each piece takes memory.
  // Clients send frames in order and need fewer.
  static constexpr size_t kMaxPieces = 1024;

  // Expects the bytes of `range`.
  explicit FrameCoverage(ByteRange range = {}) : range_(range) {}

  // Records a frame's bytes. `tensor` names the tensor in errors. Requires:
  // `frame` isn't empty and is within the range.
  // Errors: kInvalidArgument, reason DUPLICATE if some of the bytes came
  // before, LIMIT_EXCEEDED beyond kMaxPieces.
  absl::Status Add(const ByteRange& frame, absl::string_view tensor);

  const ByteRange& range() const { return range_; }
  int64_t received_bytes() const { return received_bytes_; }
  bool complete() const { return received_bytes_ == range_.size(); }

 private:
  ByteRange range_;
  int64_t received_bytes_ = 0;
  // The end of each piece by its begin. Pieces neither overlap nor touch.
  std::map<int64_t, int64_t> pieces_;
};

}  // namespace convgrad
