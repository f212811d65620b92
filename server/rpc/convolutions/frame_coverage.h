// `FrameCoverage` records which bytes of a tensor have come in frames.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/core/batch_slices.h"

namespace convgrad {

// Thread-compatible.
class FrameCoverage {
 public:
  // A limit, because each separate piece takes memory. Clients send fewer.
  static constexpr size_t kMaxPieces = 1024;

  // Expects the bytes of `range`.
  explicit FrameCoverage(ByteRange range = {}) : range_(range) {}

  // Records a frame's bytes. `tensor` names them in errors. Requires: `frame`
  // isn't empty and lies in the range. Errors: kInvalidArgument, reason
  // DUPLICATE if some of them came before, LIMIT_EXCEEDED beyond kMaxPieces.
  absl::Status Add(const ByteRange& frame, absl::string_view tensor);

  const ByteRange& range() const { return range_; }
  int64_t received_bytes() const { return received_bytes_; }
  bool complete() const { return received_bytes_ == range_.size(); }

 private:
  ByteRange range_;
  int64_t received_bytes_ = 0;
  // Begin to end; neither overlapping nor touching.
  std::map<int64_t, int64_t> pieces_;
};

}  // namespace convgrad
