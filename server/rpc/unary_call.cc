#include "server/rpc/unary_call.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "server/memory/admission.h"
#include "server/rpc/report.h"
#include "spdlog/spdlog.h"

namespace convgrad {

UnaryCall::UnaryCall(const CallServices& services,
                     grpc::GenericCallbackServerContext* context,
                     absl::string_view method, Role role,
                     absl::string_view operation)
    : Call(services, context, method, role), tensors_(services.memory) {
  sample_.operation = std::string(operation);
}

void UnaryCall::Start() {
  sample_.priority = std::string(NameOf(priority()));
  int64_t declared;
  if (absl::SimpleAtoi(Metadata(kRequestBytesKey), &declared) &&
      declared >= 0) {
    declared_bytes_ = declared;
  }
  absl::Status status = CheckMessageBytes("request", declared_bytes_);
  if (status.ok()) {
    status =
        services().scheduler->CheckArrival(priority(), client(), deadline());
  }
  if (!status.ok()) return End(std::move(status));
  AwaitMemory(AdmissionBytes(ExpectedBytes()));
}

int64_t UnaryCall::ExpectedBytes() const {
  return declared_bytes_ >= 0 ? declared_bytes_ : services().max_message_bytes;
}

void UnaryCall::OnMemory(const absl::Status& status) {
  if (!status.ok()) return End(status);
  read_start_ = absl::Now();
  AwaitClient(ExpectedBytes(), [this] { StartRead(&request_); });
}

void UnaryCall::OnSlowClient() {
  HandOver();
  const absl::Time now = absl::Now();
  if (deadline() <= now) return End(WhyGone());
  End(MakeError(
      absl::StatusCode::kDeadlineExceeded,
      {Reason::kDeadline, "request",
       absl::StrCat("no whole message of up to ", ExpectedBytes(),
                    " bytes after ", absl::FormatDuration(now - read_start_)),
       "one as fast as the server's --min_client_rate, after "
       "--unary_idle_timeout at most"}));
}

void UnaryCall::OnReadDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  if (!ok && FailedToRead()) return End(WhyGone());
  if (!ok) {
    // Either the client sent no message, or it has left since it half-closed,
    // upon which gRPC 1.51 drops the message. Only a call whose client is still
    // there can send.
    return AwaitClient(0, [this] { StartSendInitialMetadata(); });
  }
  const absl::Time start = absl::Now();
  sample_.times.receive.Add(read_start_, start);
  absl::Status status = Prepare();
  submitted_at_ = absl::Now();
  sample_.times.decode.Add(start, submitted_at_);
  if (!status.ok()) return End(std::move(status));
  submitted_ = true;
  services().scheduler->Submit(std::move(job_));
}

void UnaryCall::OnSendInitialMetadataDone(bool ok) {
  HandOver();
  if (!StopAwaitingClient()) return;
  End(ok ? InvalidField(Reason::kMalformed, "request", "no message",
                        "one message")
         : WhyGone());
}

absl::Status UnaryCall::CheckMessageBytes(absl::string_view what,
                                          int64_t bytes) const {
  const int64_t limit = services().max_message_bytes;
  if (bytes <= limit) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kLimitExceeded, std::string(what), absl::StrCat(bytes, " bytes"),
       absl::StrCat("at most ", limit, ", the server's --max_message_bytes")});
}

absl::Status UnaryCall::CheckReceived(int64_t bytes) {
  sample_.bytes_received = bytes;
  if (declared_bytes_ >= 0 && bytes > declared_bytes_) {
    return InvalidField(Reason::kByteCountMismatch, "payloads",
                        absl::StrCat(bytes, " bytes"),
                        absl::StrCat("at most ", declared_bytes_,
                                     ", declared in ", kRequestBytesKey));
  }
  return CheckMessageBytes("request", bytes);
}

absl::Status UnaryCall::Prepare() {
  ASSIGN_OR_RETURN(Request request, Decode(&request_));
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
    job_->job.keeps_weight = tensors_.OwnsOperand(*weight);
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
  End(absl::OkStatus(), &*response);
}

absl::StatusOr<grpc::ByteBuffer> UnaryCall::Respond(const JobOutcome& outcome) {
  const absl::Time start = absl::Now();
  sample_.bytes_sent = tensors_.result_bytes();
  std::vector<LentBytes> results = tensors_.TakeResults(reservation());
  // What is still to come, serialising some hundred bytes, takes microseconds.
  sample_.times.encode.Add(start, absl::Now());
  sample_.times.total = absl::Now() - arrival();
  return Encode(outcome, std::move(results));
}

void UnaryCall::Settle(const absl::Status& status) {
  tensors_.Clear();
  if (!status.ok()) sample_.bytes_sent = 0;
}

}  // namespace convgrad
