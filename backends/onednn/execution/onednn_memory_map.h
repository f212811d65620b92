// `PlaceBuffers` assigns a plan's own buffers to places in memory. Buffers on
// the tape don't overlap. Buffers in scratch share bytes if no step uses both
// at once.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Returns `bytes` rounded up to a multiple of 64.
int64_t RoundUpToLine(int64_t bytes);

struct MemoryMap {
  static constexpr int64_t kUnplaced = -1;

  // By buffer; kUnplaced if the buffer isn't there. Units: bytes.
  std::vector<int64_t> tape_offsets;
  std::vector<int64_t> scratch_offsets;
  int64_t tape_bytes = 0;
  int64_t scratch_bytes = 0;
};

// Returns a place for each of the schedule's own buffers: on the tape for all
// buffers in `on_tape`, in scratch for those of the others that a step uses.
// Every place is aligned to 64 bytes.
MemoryMap PlaceBuffers(const Schedule& schedule,
                       const std::vector<bool>& on_tape);

}  // namespace convgrad::onednn
