// What a run makes of its parameters alone, which later runs with the same
// parameters find done: weights in the library's layouts, with scales in them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

struct PreparedParts {
  // By step: whether all that it reads comes from parameters.
  std::vector<bool> prepares;
  // By buffer: where it lies in what is kept, or kNotKept.
  std::vector<int64_t> offsets;
  static constexpr int64_t kNotKept = -1;
  int64_t bytes = 0;
};

// Finds them. `parameters` are positions in RunBuffers::operands; without any,
// nothing is prepared.
PreparedParts FindPrepared(const Schedule& schedule,
                           absl::Span<const size_t> parameters);

}  // namespace convgrad::onednn
