#include "server/rpc/calls/unary_call.h"

#include <string>

#include "backends/core/status.h"
#include "backends/core/steady_now.h"
#include "server/memory/admission.h"
#include "server/rpc/calls/report.h"

namespace convgrad {

absl::Status UnaryCall::CheckArrival() {
  return services().scheduler->CheckArrival(priority(), client(), deadline());
}

absl::Status UnaryCall::OnMessage() {
  {
    const auto measured = sample_.times.decode.Measure();
    ASSIGN_OR_RETURN(Request request, Decode());
    sample_.backend = std::string(request.backend->name());
    sample_.flops = request.operation->flops();
    const std::unique_ptr<Request> next = std::move(request.next);
    RETURN_IF_ERROR(MakeJob(std::move(request), reservation(), &work_));
    if (next != nullptr) {
      sample_.flops += next->operation->flops();
      // Reserves the memory of the second operation before the first one runs,
      // so that the second one can't fail for lack of memory.
      RETURN_IF_ERROR(reservation()->TryGrow(kCallOverheadBytes));
      next_reservation_ = reservation()->Split(kCallOverheadBytes);
      next_.emplace(services().memory);
      RETURN_IF_ERROR(MakeJob(std::move(*next), &next_reservation_, &*next_));
    }
    const int64_t payload_bytes = work_.tensors.payload_bytes();
    RETURN_IF_ERROR(CheckMessageBytes("response", payload_bytes));
    if (session().is_change()) {
      RETURN_IF_ERROR(session().Promise({payload_bytes, ResponseHeadBytes()}));
    }
  }
  const int64_t held = reservation()->bytes() + next_reservation_.bytes();
  work_.job->job.held_bytes = held;
  if (next_) next_->job->job.held_bytes = held;
  submitted_ = true;
  services().scheduler->Submit(std::move(work_.job));
  return absl::OkStatus();
}

absl::Status UnaryCall::MakeJob(Request request, Reservation* reservation,
                                Work* work) {
  const Operation& operation = *request.operation;
  const Backend& backend = *request.backend;
  Job job;
  job.operation = request.operation;
  job.backend = request.backend;
  job.inspection = request.inspection;
  job.tensors = &work->tensors;
  job.priority = priority();
  job.client = client();
  job.deadline = deadline();
  job.cancelled = cancelled();
  job.done = [this](JobOutcome outcome) { OnJobDone(std::move(outcome)); };
  // Checks the queue first, so that a call that is refused binds no memory.
  ASSIGN_OR_RETURN(work->job, services().scheduler->Prepare(std::move(job)));
  RETURN_IF_ERROR(
      work->tensors.Bind(operation, std::move(request.places), reservation));
  const std::vector<size_t> weights = operation.weight_positions();
  work->job->job.keeps_weights =
      !weights.empty() && work->tensors.AreConstant(weights);
  work->job->job.weight_ids = work->tensors.ConstantIds(weights);
  // This thread copies the tensors for a device, so that the device's worker
  // doesn't spend its time on copies.
  if (backend.device_count() == 0) return absl::OkStatus();
  return work->tensors.BringIn(backend, 1).status();
}

void UnaryCall::OnGone() {
  if (submitted_) services().scheduler->DropDead();
}

void UnaryCall::OnJobDone(JobOutcome outcome) {
  const bool is_second = next_ && next_->job == nullptr;
  outcome.plan_cache_hit &= !made_plan_;
  AddStages(outcome, &sample_);
  sample_.bytes_copied = work_.tensors.copied_bytes();
  sample_.plan_cache_hit =
      outcome.plan_cache_hit && (!is_second || sample_.plan_cache_hit);
  sample_.ran = outcome.status.ok();
  if (outcome.findings.self_check) {
    sample_.self_check = outcome.findings.self_check->passed
                             ? SelfCheckOutcome::kPassed
                             : SelfCheckOutcome::kFailed;
  }
  if (!outcome.status.ok()) return End(std::move(outcome.status));
  if (is_second) {
    outcome_.queue += outcome.queue;
    outcome_.run += outcome.run;
  } else {
    outcome_ = std::move(outcome);
  }
  if (next_ && !is_second) {
    next_->job->job.continues = true;
    return services().scheduler->Submit(std::move(next_->job));
  }
  const absl::Time start = SteadyNow();
  sample_.bytes_sent = work_.tensors.sent_bytes();
  std::vector<grpc::Slice> payloads;
  for (Work* work : {&work_, next_ ? &*next_ : nullptr}) {
    if (work == nullptr) continue;
    for (SharedBytes& result : work->tensors.TakeResults()) {
      payloads.push_back(
          SliceOver(result.data, result.size, std::move(result.owner)));
    }
  }
  // The rest serialises some hundred bytes, which takes microseconds.
  sample_.times.encode.Add(start, SteadyNow());
  sample_.times.total = SteadyNow() - arrival();
  Answer(Encode(outcome_, std::move(payloads)));
}

void UnaryCall::Settle(const absl::Status& status) {
  work_.tensors.Clear();
  if (next_) next_->tensors.Clear();
  next_reservation_.ShrinkTo(0);
  MessageCall::Settle(status);
}

}  // namespace convgrad
