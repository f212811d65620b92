#include "server/rpc/unary_call.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "server/rpc/report.h"

namespace convgrad {

UnaryCall::UnaryCall(const CallServices& services,
                     grpc::GenericCallbackServerContext* context,
                     absl::string_view method, Role role,
                     absl::string_view operation)
    : MessageCall(services, context, method, role, operation),
      tensors_(services.memory) {}

absl::Status UnaryCall::CheckArrival() {
  return services().scheduler->CheckArrival(priority(), client(), deadline());
}

void UnaryCall::OnMessage(grpc::ByteBuffer* message) {
  const absl::Time start = absl::Now();
  absl::Status status = Prepare(message);
  submitted_at_ = absl::Now();
  sample_.times.decode.Add(start, submitted_at_);
  if (!status.ok()) return End(std::move(status));
  submitted_ = true;
  services().scheduler->Submit(std::move(job_));
}

absl::Status UnaryCall::Prepare(grpc::ByteBuffer* message) {
  ASSIGN_OR_RETURN(Request request, Decode(message));
  const Operation& operation = *request.operation;
  const Backend& backend = *request.backend;
  sample_.backend = std::string(backend.name());
  sample_.flops = operation.flops();
  Job job;
  job.operation = request.operation;
  job.backend = request.backend;
  job.deterministic = request.deterministic;
  job.inspection = request.inspection;
  job.tensors = &tensors_;
  job.priority = priority();
  job.client = client();
  job.deadline = deadline();
  job.cancelled = cancelled();
  job.done = [this](JobOutcome outcome) { OnJobDone(std::move(outcome)); };
  job_ = services().scheduler->Prepare(std::move(job));
  // Before anything is done for nothing.
  RETURN_IF_ERROR(services().scheduler->CheckRoom(*job_));
  RETURN_IF_ERROR(
      tensors_.Bind(operation, std::move(request.places), reservation()));
  if (const auto weight = operation.weight_position()) {
    job_->job.keeps_weight = tensors_.IsConstant(*weight);
    job_->job.weight_id = tensors_.constant_id(*weight);
  }
  // A device's worker has better to do than copy.
  if (backend.device_count() == 0) return absl::OkStatus();
  return tensors_.BringIn(nullptr, backend, 1).status();
}

void UnaryCall::OnGone() {
  if (submitted_) services().scheduler->DropDead();
}

void UnaryCall::OnJobDone(JobOutcome outcome) {
  sample_.queued = true;
  sample_.bytes_copied = tensors_.copied_bytes();
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
  absl::StatusOr<grpc::ByteBuffer> response = Respond(outcome);
  if (!response.ok()) return End(response.status());
  Answer(*std::move(response));
}

absl::StatusOr<grpc::ByteBuffer> UnaryCall::Respond(const JobOutcome& outcome) {
  const absl::Time start = absl::Now();
  sample_.bytes_sent = tensors_.sent_bytes();
  std::vector<LentBytes> results = tensors_.TakeResults(reservation());
  // What is still to come, serialising some hundred bytes, takes microseconds.
  sample_.times.encode.Add(start, absl::Now());
  sample_.times.total = absl::Now() - arrival();
  return Encode(outcome, std::move(results));
}

void UnaryCall::Settle(const absl::Status& status) {
  tensors_.Clear();
  MessageCall::Settle(status);
}

}  // namespace convgrad
