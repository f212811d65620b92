// `ActiveJob` is a job that the scheduler has taken. A worker computes it: for
// each slice a plan, scratch and a run, and at the end the inspection of the
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backends/core/batch_slices.h"
#include "server/memory/call_memory.h"
#include "server/memory/sliced_tensors.h"
#include "server/scheduling/job.h"
#include "server/scheduling/plan_cache.h"
#include "server/scheduling/weight_cache.h"
#include "server/scheduling/work_rates.h"

namespace convgrad {

// The objects that all workers share. They outlive the workers.
struct WorkMeans {
  PlanCache* plans = nullptr;
  CallMemory* memory = nullptr;
  WorkRates* rates = nullptr;
  int threads = 1;
  std::function<absl::Time()> clock;
  WeightCache* weights = nullptr;  // Null: no cache.
};

// `ActiveJob` is thread-compatible; workers use it one after the other.
class ActiveJob {
 public:
  // Cuts the job into slices and predicts the time of one. `means` outlive
  // this.
  ActiveJob(Job taken, const WorkMeans& means);

  int64_t slices_left() const { return count_ - next_; }

  // Errors: kCancelled; kDeadlineExceeded.
  absl::Status CheckAlive() const;

  // Computes the next slice (the whole job if it has only one) on the backend's
  // `device`, 0 if the backend has none. If the plan has several quanta, runs
  // one of them; the last quantum ends the slice. Adds the wait and the times
  // to `outcome`. Requires: slices_left() > 0.
  // Errors: those of CheckAlive, plans and runs; kResourceExhausted, reason
  // BUSY or LIMIT_EXCEEDED, if there is no memory for sums or scratch.
  absl::Status RunSlice(int device);

  // Calls the job's `done`. All jobs end here.
  void End(absl::Status status);

  Job job;
  JobOutcome outcome;
  // The start of the current wait.
  absl::Time queued_at;
  // The predicted time of one slice. All slices except the last have the same
  // operation.
  absl::Duration slice_time;

 private:
  // Returns the client and the bytes that it holds for the job.
  MemoryBudget::Holder Holder() const {
    return {job.client, job.held_bytes + sliced_.reserved_bytes(),
            next_ > 0 || job.continues};
  }
  // Copies the operands of the whole job into its buffers, and cuts these into
  // slices.
  absl::Status BringIn();
  // Looks up the plan of the next slice, brings in its operands and takes its
  // scratch.
  absl::Status BeginSlice(int device);
  // Sets the prepared weights of the current slice, or the memory for them, if
  // the weight cache has any.
  void AttachWeight();
  WeightLease LeaseWeight() const;

  // A slice with quanta left.
  struct CurrentSlice {
    // Declared first, because it pays for the plan and the scratch.
    Reservation reservation;
    std::shared_ptr<const Plan> plan;
    RunBuffers buffers;
    Buffer scratch;
    int next_quantum = 0;
  };

  const WorkMeans& means_;
  // The slices; nullopt if the job's operation is one slice.
  std::optional<BatchSlices> slices_;
  RunBuffers whole_;
  SlicedTensors sliced_;
  std::optional<WeightLease> weight_;  // nullopt before the first run.
  int64_t count_ = 1;
  int64_t next_ = 0;
  std::shared_ptr<const Operation> next_operation_;
  WorkRates::Work work_;  // Of one slice.
  std::optional<CurrentSlice> current_;
};

}  // namespace convgrad
