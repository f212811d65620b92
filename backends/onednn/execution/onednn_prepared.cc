#include "backends/onednn/execution/onednn_prepared.h"

#include <algorithm>

#include "backends/onednn/execution/onednn_memory_map.h"

namespace convgrad::onednn {
namespace {

// Returns whether a step's results depend on constants alone, and a run may
// skip the step if it has these results: no other step writes a part of them.
bool Prepares(const Step& step, const Schedule& schedule,
              const std::vector<int>& writers,
              const std::vector<bool>& is_constant) {
  return step.only_if == kNoBuffer && !step.check &&
         std::all_of(step.reads.begin(), step.reads.end(),
                     [&](BufferId buffer) { return is_constant[buffer]; }) &&
         std::all_of(step.writes.begin(), step.writes.end(),
                     [&](BufferId buffer) {
                       return schedule.buffers()[buffer].area == Area::kOwn &&
                              writers[buffer] == 1;
                     });
}

// Returns how many steps write each buffer.
std::vector<int> WritersOf(const Schedule& schedule) {
  std::vector<int> writers(schedule.buffers().size());
  for (const Step& step : schedule.steps()) {
    for (const BufferId buffer : step.writes) ++writers[buffer];
  }
  return writers;
}

}  // namespace

PreparedParts FindPrepared(const Schedule& schedule,
                           absl::Span<const size_t> parameters) {
  const auto& buffers = schedule.buffers();
  PreparedParts parts;
  parts.prepares.resize(schedule.steps().size());
  parts.offsets.assign(buffers.size(), PreparedParts::kNotKept);
  if (parameters.empty()) return parts;
  std::vector<bool> is_constant(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    is_constant[i] = buffers[i].area == Area::kOperand &&
                     std::find(parameters.begin(), parameters.end(),
                               buffers[i].index) != parameters.end();
  }
  const std::vector<int> writers = WritersOf(schedule);
  for (size_t i = 0; i < schedule.steps().size(); ++i) {
    const Step& step = schedule.steps()[i];
    parts.prepares[i] = Prepares(step, schedule, writers, is_constant);
    if (parts.prepares[i]) {
      for (const BufferId buffer : step.writes) is_constant[buffer] = true;
      continue;
    }
    // The caller keeps the constants that other steps read.
    for (const BufferId buffer : step.reads) {
      const bool is_new = is_constant[buffer] &&
                          buffers[buffer].area == Area::kOwn &&
                          parts.offsets[buffer] == PreparedParts::kNotKept;
      if (!is_new) continue;
      parts.offsets[buffer] = parts.bytes;
      parts.bytes += RoundUpToLine(buffers[buffer].bytes);
    }
  }
  return parts;
}

}  // namespace convgrad::onednn
