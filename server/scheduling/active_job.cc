#include "server/scheduling/active_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "server/memory/admission.h"
#include "server/scheduling/nominal_time.h"

namespace convgrad {

ActiveJob::ActiveJob(Job taken, const WorkMeans& means)
    : job(std::move(taken)), means_(means) {
  next_operation_ = job.operation;
  const int64_t items =
      ItemsPerSlice(*job.backend, *job.operation, means.threads);
  if (items < job.operation->batch()) {
    slices_.emplace(job.operation, items);
    count_ = slices_->count();
    next_operation_ = slices_->SliceOperation(0);
  }
  work_ = means.rates->Predict(*job.backend, *next_operation_, means.threads);
  slice_time = work_.predicted;
}

absl::Status ActiveJob::CheckAlive() const {
  if (job.cancelled != nullptr && job.cancelled->load()) {
    return MakeError(
        absl::StatusCode::kCancelled,
        {Reason::kCancelled, "call", "cancelled by its client", ""});
  }
  if (job.deadline <= means_.clock()) {
    return DeadlineExceeded("deadline", "passed before the work", "");
  }
  return absl::OkStatus();
}

absl::Status ActiveJob::RunSlice(int device) {
  outcome.queue += means_.clock() - queued_at;
  RETURN_IF_ERROR(CheckAlive());
  if (!current_) RETURN_IF_ERROR(BeginSlice(device));
  CurrentSlice& slice = *current_;
  ASSIGN_OR_RETURN(const RunTimes times,
                   slice.plan->RunQuantum(slice.buffers, slice.next_quantum++));
  outcome.run += times;
  if (slice.next_quantum < slice.plan->quanta()) return absl::OkStatus();
  if (!slice.buffers.prepared_weight.empty()) weight_->SetPrepared();
  current_.reset();
  if (slices_) sliced_.End(next_);
  if (next_ == 0) {
    const RunTimes& all = outcome.run;
    means_.rates->Learn(work_, all.reorder + all.compute + all.transfer);
  }
  if (++next_ < count_) {
    next_operation_ = slices_->SliceOperation(next_);
    return absl::OkStatus();
  }
  // The self-check makes two more passes over the whole batch.
  const bool is_long = job.inspection.self_check != SelfCheckMode::kOff;
  if (is_long) RETURN_IF_ERROR(CheckAlive());
  ASSIGN_OR_RETURN(outcome.findings,
                   Inspect(job.inspection, *job.backend, *job.operation,
                           {.threads = means_.threads, .device = device},
                           whole_, means_.memory));
  if (job.tensors != nullptr) {
    job.tensors->BringOut(*job.backend, means_.threads);
  }
  return absl::OkStatus();
}

void ActiveJob::End(absl::Status status) {
  outcome.status = std::move(status);
  job.done(std::move(outcome));
}

absl::Status ActiveJob::BeginSlice(int device) {
  // Sums that don't fit in memory need no plan.
  if (slices_ && next_ == 0) RETURN_IF_ERROR(BringIn());
  const absl::Time start = means_.clock();
  absl::StatusOr<PlanCache::Lookup> lookup =
      means_.plans->Get(*job.backend, *next_operation_,
                        {.threads = means_.threads, .device = device});
  outcome.plan += means_.clock() - start;
  outcome.plan_cache_hit =
      (next_ == 0 || outcome.plan_cache_hit) && lookup.ok() && lookup->hit;
  outcome.planned = true;
  RETURN_IF_ERROR(lookup.status());
  outcome.implementation = std::string(lookup->plan->implementation());
  RETURN_IF_ERROR(CheckAlive());
  if (!slices_) RETURN_IF_ERROR(BringIn());
  const Plan& plan = *lookup->plan;
  CallMemory& memory = *means_.memory;
  CurrentSlice slice;
  // Takes scratch from the pool for each run: it costs one lock, reuses warm
  // memory, and an idle server holds none.
  const int64_t unpaid = std::max<int64_t>(
      BufferPool::CapacityFor(plan.scratch_bytes()) - job.prepaid_scratch_bytes,
      0);
  ASSIGN_OR_RETURN(
      slice.reservation,
      memory.budget.TryReserve(
          unpaid + (lookup->kept ? 0 : plan.resident_bytes()), Holder()));
  ASSIGN_OR_RETURN(slice.scratch, memory.pool.Take(plan.scratch_bytes()));
  slice.buffers = slices_ ? sliced_.Begin(next_) : whole_;
  slice.buffers.scratch =
      absl::MakeSpan(slice.scratch.data(), slice.scratch.size());
  slice.plan = lookup->plan;
  current_ = std::move(slice);
  const absl::Time attach_start = means_.clock();
  AttachWeight();
  outcome.run.reorder += means_.clock() - attach_start;
  return absl::OkStatus();
}

absl::Status ActiveJob::BringIn() {
  whole_ = job.buffers;
  if (job.tensors != nullptr) {
    const absl::Time start = means_.clock();
    ASSIGN_OR_RETURN(whole_,
                     job.tensors->BringIn(*job.backend, means_.threads));
    outcome.run.reorder += means_.clock() - start;
  }
  if (!slices_) return absl::OkStatus();
  return sliced_.BindWindows(*slices_, whole_, Holder(), means_.memory);
}

void ActiveJob::AttachWeight() {
  if (means_.weights == nullptr || !job.keeps_weights) return;
  if (!weight_) weight_ = LeaseWeight();
  // The last slice may be smaller and have another plan.
  if (weight_->plan() != current_->plan.get()) return;
  current_->buffers.prepared_weight = weight_->bytes();
  current_->buffers.weight_is_prepared = weight_->is_prepared();
}

WeightLease ActiveJob::LeaseWeight() const {
  const std::shared_ptr<const Plan>& plan = current_->plan;
  if (!job.weight_ids.empty()) {
    return means_.weights->Lease(job.client, plan, job.weight_ids);
  }
  const std::vector<size_t> positions = job.operation->weight_positions();
  if (positions.size() != 1) return {};
  const TensorDescriptor* weight =
      job.operation->OperandUses()[positions[0]].tensor;
  if (weight == nullptr) return {};
  const auto* data =
      static_cast<const std::byte*>(current_->buffers.operands[positions[0]]);
  return means_.weights->Lease(
      job.client, plan, absl::MakeConstSpan(data, CountableBytes(*weight)));
}

}  // namespace convgrad
