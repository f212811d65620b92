// `PlaceResults` assigns buffers to the results of a network's operation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Buffers by name. Value type.
struct NetworkResults {
  // Fetched values in the request's order, f32 and row-major.
  std::vector<BufferId> fetched;
  // New values of statistics.
  std::map<std::string, BufferId> statistics;
  // Gradients, f32 and row-major.
  std::map<std::string, BufferId> input_gradients;
  std::map<std::string, BufferId> parameter_gradients;
  // All buffers that the caller wants.
  std::vector<BufferId> wanted;
};

// Adds the buffers of the results to `schedule`. A result that the operation
// doesn't have gets a buffer that the plan owns, so that a forward's buffers
// have the same numbers whatever results the backward has. With `everything`
// such a buffer counts as wanted.
NetworkResults PlaceResults(const ProgramOperation& operation, bool everything,
                            Schedule* schedule);

}  // namespace convgrad::onednn
