// Runs the steps of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/mutex.h"
#include "backends/onednn/execution/onednn_memory_map.h"
#include "backends/onednn/execution/onednn_prepared.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Steps, and a place for all that they use.
struct PlacedSchedule {
  Schedule schedule;
  MemoryMap memory;
  // Where RunBuffers has the tape: kOwn says that there is none.
  NetworkBuffer tape = {};
  // What depends on the parameters alone.
  PreparedParts prepared = {};
};

// Immutable; thread-safe: several threads may run it at once.
class Executor {
 public:
  // To be run by a team of `threads`. Throws dnnl::error.
  Executor(PlacedSchedule placed, int threads);
  ~Executor();

  // Runs the steps [begin, end). RunTimes::steps has those with a kind.
  // Errors: those of the steps' checks; kInternal if the library fails.
  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers, size_t begin,
                               size_t end) const;

  const std::vector<NetworkStep>& steps() const {
    return placed_.schedule.steps();
  }
  const PlacedSchedule& placed() const { return placed_; }
  // As Plan::resident_bytes.
  int64_t resident_bytes() const;

 private:
  // What one run at a time needs of the library: a stream and memory objects.
  // Making them costs as much as a small layer, so they are kept, and pointed
  // at the next run's memory.
  struct Session;

  std::unique_ptr<Session> TakeSession() const;
  void ReturnSession(std::unique_ptr<Session> session) const;
  std::byte* AddressOf(size_t buffer, const RunBuffers& buffers) const;
  bool IsDone(size_t step, const RunBuffers& buffers) const;
  absl::Status RunIn(Session* session, const RunBuffers& buffers, size_t begin,
                     size_t end, RunTimes* times) const;

  const PlacedSchedule placed_;
  const int threads_;
  // By step; empty where it is a function of ours.
  std::vector<dnnl::primitive> primitives_;
  mutable Mutex mutex_;
  // Those that no run has; as many as there were runs at once.
  mutable std::vector<std::unique_ptr<Session>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad::onednn
