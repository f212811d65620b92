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
  const absl::Time start = SteadyNow();
  absl::Status status = MakeJobs();
  sample_.times.decode.Add(start, SteadyNow());
  RETURN_IF_ERROR(status);
  submitted_ = true;
  Submit(&work_);
  return absl::OkStatus();
}

absl::Status UnaryCall::MakeJobs() {
  ASSIGN_OR_RETURN(Request request, Decode());
  sample_.backend = std::string(request.backend->name());
  sample_.flops = request.operation->flops();
  const std::unique_ptr<Request> next = std::move(request.next);
  RETURN_IF_ERROR(MakeJob(std::move(request), reservation(), &work_));
  if (next == nullptr) return PromiseResponse();
  sample_.flops += next->operation->flops();
  // Reserves the memory of the second operation before the first one runs, so
  // that the second one can't fail for lack of memory.
  ASSIGN_OR_RETURN(next_reservation_,
                   services().memory->budget.TryReserve(kCallOverheadBytes));
  next_.emplace(services().memory);
  RETURN_IF_ERROR(MakeJob(std::move(*next), &next_reservation_, &*next_));
  return PromiseResponse();
}

absl::Status UnaryCall::PromiseResponse() {
  const int64_t payload_bytes = work_.tensors.payload_bytes();
  RETURN_IF_ERROR(CheckMessageBytes("response", payload_bytes));
  if (!session().is_change()) return absl::OkStatus();
  return session().Promise({payload_bytes, ResponseHeadBytes()});
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
  work->job->job.keeps_weights = work->tensors.AreConstant(weights);
  work->job->job.weight_ids = work->tensors.ConstantIds(weights);
  // This thread copies the tensors for a device, so that the device's worker
  // doesn't spend its time on copies.
  if (backend.device_count() == 0) return absl::OkStatus();
  return work->tensors.BringIn(nullptr, backend, 1).status();
}

void UnaryCall::Submit(Work* work) {
  submitted_at_ = SteadyNow();
  services().scheduler->Submit(std::move(work->job));
}

void UnaryCall::OnGone() {
  if (submitted_) services().scheduler->DropDead();
}

void UnaryCall::OnJobDone(JobOutcome outcome) {
  sample_.queued = true;
  sample_.bytes_copied = work_.tensors.copied_bytes();
  AddStages(outcome, submitted_at_, &sample_);
  sample_.planned = outcome.planned;
  sample_.plan_cache_hit = outcome.plan_cache_hit;
  sample_.ran = outcome.status.ok();
  if (outcome.findings.self_check) {
    sample_.self_check = outcome.findings.self_check->passed
                             ? SelfCheckOutcome::kPassed
                             : SelfCheckOutcome::kFailed;
  }
  if (!outcome.status.ok()) return End(std::move(outcome.status));
  if (next_ && next_->job != nullptr) {
    outcome_ = std::move(outcome);
    next_->job->job.continues = true;
    return Submit(&*next_);
  }
  if (next_) {
    outcome_.queue += outcome.queue;
    outcome_.plan += outcome.plan;
    outcome_.run += outcome.run;
  } else {
    outcome_ = std::move(outcome);
  }
  Answer(Respond());
}

absl::StatusOr<grpc::ByteBuffer> UnaryCall::Respond() {
  const absl::Time start = SteadyNow();
  sample_.bytes_sent = work_.tensors.sent_bytes();
  std::vector<SharedBytes> results = work_.tensors.TakeResults(reservation());
  if (next_) {
    for (SharedBytes& result : next_->tensors.TakeResults(&next_reservation_)) {
      results.push_back(std::move(result));
    }
  }
  // The rest serialises some hundred bytes, which takes microseconds.
  sample_.times.encode.Add(start, SteadyNow());
  sample_.times.total = SteadyNow() - arrival();
  return Encode(outcome_, std::move(results));
}

void UnaryCall::Settle(const absl::Status& status) {
  work_.tensors.Clear();
  if (next_) next_->tensors.Clear();
  next_reservation_.ShrinkTo(0);
  MessageCall::Settle(status);
}

}  // namespace convgrad
