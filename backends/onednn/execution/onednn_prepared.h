// `FindPrepared` finds the prepared weights of a schedule: buffers whose
// contents depend on the parameters alone, for example weights in the library's
// layout. A caller may keep them; later runs with equal parameters then skip
// the steps that write them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

struct PreparedParts {
  // By step: whether it writes prepared weights or their inputs.
  std::vector<bool> prepares;
  // By buffer: its offset in the caller's memory for prepared weights, or
  // kNotKept. Units: bytes.
  std::vector<int64_t> offsets;
  static constexpr int64_t kNotKept = -1;
  int64_t bytes = 0;
};

// Returns the prepared weights of a schedule; none without parameters.
// `parameters` are positions in RunBuffers::operands.
PreparedParts FindPrepared(const Schedule& schedule,
                           absl::Span<const size_t> parameters);

}  // namespace convgrad::onednn
