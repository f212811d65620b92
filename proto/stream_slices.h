// These functions compute how a stream cuts its operation and its tensors. Both
// ends compute it from the stream's header (StreamHeader, OperandFrame and
// ResultFrame in service.proto).
//
// Thread-safe: free functions without state.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/core/batch_slices.h"

namespace convgrad {

// Largest payload of one frame.
inline constexpr int64_t kMaxFrameBytes = int64_t{4} << 20;

// Returns the part of `range` in a frame that begins at `begin`. Requires:
// range.begin <= begin <= range.end.
ByteRange FrameAt(const ByteRange& range, int64_t begin);

// Returns the slices of a stream with `slice_items` in its header; 0 selects
// the contract's formula. Requires: as BatchSlices, but slice_items >= 0.
BatchSlices StreamSlices(std::shared_ptr<const Operation> operation,
                         int64_t slice_items);

}  // namespace convgrad
