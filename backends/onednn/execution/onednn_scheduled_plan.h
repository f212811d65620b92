// `ScheduledPlan` runs a schedule. It is the base class of the plans of
// convolutions and of networks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"
#include "backends/onednn/execution/onednn_memory_map.h"
#include "backends/onednn/execution/onednn_prepared.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Approximate sizes of a primitive with its generated code and of a function,
// measured as growth of the resident size: 43 to 62 KiB over plans of
// convolutions and linear layers (oneDNN 3.2), 1 to 2 KiB over plans of sines
// and permutes.
inline constexpr int64_t kPrimitiveBytes = 64 << 10, kFunctionBytes = 4 << 10;

// Steps and a location for every buffer that they use.
struct PlacedSchedule {
  Schedule schedule;
  MemoryMap memory;
  // The tape in RunBuffers; kOwn if there is no tape.
  Buffer tape = {};
  // The steps that depend on the parameters alone.
  PreparedParts prepared = {};
};

// Immutable; thread-safe.
class ScheduledPlan : public Plan {
 public:
  // Makes a plan for a team of `threads`. Throws dnnl::error.
  ScheduledPlan(PlacedSchedule placed, std::string implementation, int threads);
  ~ScheduledPlan() override;

  // RunTimes::steps has the steps that have a kind.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    return RunSteps(buffers, 0, steps().size());
  }
  // Runs the steps [begin, end).
  // Errors: those of Step::check; kInternal if the library fails.
  absl::StatusOr<RunTimes> RunSteps(const RunBuffers& buffers, size_t begin,
                                    size_t end) const;

  int64_t scratch_bytes() const override {
    return placed_.memory.scratch_bytes;
  }
  int64_t prepared_weight_bytes() const override {
    return placed_.prepared.bytes;
  }
  int64_t tape_bytes() const override { return placed_.memory.tape_bytes; }
  std::vector<std::string> reference_steps() const override;
  int64_t resident_bytes() const override;
  absl::string_view implementation() const override { return implementation_; }

  const Schedule& schedule() const { return placed_.schedule; }
  const std::vector<Step>& steps() const { return schedule().steps(); }

 private:
  // The library's stream and memory objects for one run at a time. Constructing
  // them takes as long as computing a small layer, so the plan caches them, and
  // each run sets their addresses.
  struct Session;

  std::unique_ptr<Session> TakeSession() const;
  // Returns where a buffer is in one run; null if no step uses it.
  std::byte* AddressOf(size_t index, const RunBuffers& buffers) const;
  // Zeroes the bytes between the buffers of the tape, so that equal runs write
  // equal tapes.
  void FillTapeGaps(std::byte* tape) const;

  const PlacedSchedule placed_;
  const std::string implementation_;
  const int threads_;
  // By step; empty for a function of ours.
  std::vector<dnnl::primitive> primitives_;
  std::vector<bool> is_reference_;
  mutable Mutex mutex_;
  // Idle sessions; their number is the maximum of concurrent runs.
  mutable std::vector<std::unique_ptr<Session>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::onednn
