// Where the plan's own buffers lie: on the tape, one behind the other, or in
// one scratch area that they share by the time that each is in use.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Returns the least multiple of 64 that is as large, or larger.
int64_t RoundUpToLine(int64_t bytes);

struct MemoryMap {
  static constexpr int64_t kUnplaced = -1;

  // By buffer; kUnplaced where it isn't there. Units: bytes.
  std::vector<int64_t> tape_offsets;
  std::vector<int64_t> scratch_offsets;
  int64_t tape_bytes = 0;
  int64_t scratch_bytes = 0;
};

// Returns a place for each own buffer of the schedule's steps: on the tape
// those with `on_tape`, whether steps use them or not, and in scratch the
// others. Every place is aligned to 64 bytes.
MemoryMap PlaceBuffers(const Schedule& schedule,
                       const std::vector<bool>& on_tape);

}  // namespace convgrad::onednn
