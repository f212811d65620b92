#include "server/rpc/compute_call.h"

#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/checked_math.h"
#include "backends/core/status.h"
#include "proto/call_metadata.h"
#include "proto/codec.h"
#include "server/memory/admission.h"
#include "server/rpc/report.h"
#include "spdlog/spdlog.h"

namespace convgrad {
namespace {

absl::Status TooLarge(absl::string_view what, int64_t found, int64_t limit) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      {Reason::kLimitExceeded, std::string(what), absl::StrCat(found, " bytes"),
       absl::StrCat("at most ", limit, ", the server's --max_message_bytes")});
}

// Of the results that go by message.
int64_t ResponseBytes(const DecodedOperation& decoded) {
  const ConvOperation& operation = decoded.operation;
  int64_t bytes = 0;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    if (decoded.regions.results[i]) continue;
    bytes = SaturatingAdd(bytes, *ByteSize(operation.results[i].descriptor));
  }
  return bytes;
}

}  // namespace

ComputeCall::ComputeCall(const CallServices& services,
                         grpc::GenericCallbackServerContext* context,
                         Direction direction)
    : UnaryCall(
          services, context,
          direction == Direction::kForward ? "ConvForward" : "ConvBackward",
          RoleFor(direction)),
      direction_(direction),
      buffers_(services.memory) {
  sample_.direction = direction;
}

void ComputeCall::Start() {
  sample_.priority = std::string(NameOf(priority()));
  const int64_t limit = services().max_message_bytes;
  int64_t declared;
  if (absl::SimpleAtoi(Metadata(kRequestBytesKey), &declared) &&
      declared >= 0) {
    declared_bytes_ = declared;
  }
  if (declared_bytes_ > limit) {
    return End(TooLarge("request", declared_bytes_, limit));
  }
  absl::Status room =
      services().scheduler->CheckArrival(priority(), client(), deadline());
  if (!room.ok()) return End(std::move(room));
  Admit(AdmissionBytes(declared_bytes_ >= 0 ? declared_bytes_ : limit));
}

void ComputeCall::OnRequest() {
  sample_.times.receive.Add(read_start(), read_end());
  const absl::Time start = absl::Now();
  absl::Status status = Prepare();
  submitted_at_ = absl::Now();
  sample_.times.decode.Add(start, submitted_at_);
  if (!status.ok()) return End(std::move(status));
  submitted_ = true;
  services().scheduler->Submit(std::move(job_));
}

absl::Status ComputeCall::CheckDeclared(int64_t received) {
  if (declared_bytes_ >= 0 && received > declared_bytes_) {
    return InvalidField(Reason::kByteCountMismatch, "payloads",
                        absl::StrCat(received, " bytes"),
                        absl::StrCat("at most ", declared_bytes_,
                                     ", declared in ", kRequestBytesKey));
  }
  const int64_t limit = services().max_message_bytes;
  if (received > limit) return TooLarge("request", received, limit);
  return absl::OkStatus();
}

template <typename Request>
absl::StatusOr<ComputeCall::Plea> ComputeCall::Parse() {
  Plea plea;
  Request head;
  ASSIGN_OR_RETURN(plea.bytes.payloads, SplitMessage(request(), &head));
  const std::vector<int64_t> sizes = SizesOf(plea.bytes.payloads);
  sample_.bytes_received =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (services().cost_model != nullptr) {
    services().cost_model->OnReceived(sample_.bytes_received,
                                      read_end() - read_start());
  }
  RETURN_IF_ERROR(CheckDeclared(sample_.bytes_received));
  RETURN_IF_ERROR(CheckCriticalFields(head));
  ASSIGN_OR_RETURN(plea.options, DecodeOptions(head.options()));
  ASSIGN_OR_RETURN(plea.decoded,
                   DecodeOperation(head.operation(), direction_, sizes));
  sample_.dtype = std::string(NameOf(plea.decoded.operation.dtype()));
  RETURN_IF_ERROR(CheckLimits(plea.decoded));
  RETURN_IF_ERROR(plea.decoded.support);
  ASSIGN_OR_RETURN(plea.bytes.regions,
                   FindRegions(plea.decoded.regions, services().regions));
  sample_.bytes_received += plea.bytes.regions.OperandBytes();
  CostModel::Query cost{plea.options.deterministic,
                        ResponseBytes(plea.decoded)};
  for (int64_t size : sizes) cost.wire_bytes += size;
  ASSIGN_OR_RETURN(plea.route,
                   services().router->Route(plea.decoded.operation,
                                            {plea.options.backend, cost}));
  return plea;
}

absl::Status ComputeCall::CheckLimits(const DecodedOperation& decoded) const {
  RETURN_IF_ERROR(services().router->CheckLimits(decoded.operation));
  const int64_t bytes = ResponseBytes(decoded);
  const int64_t limit = services().max_message_bytes;
  if (bytes > limit) return TooLarge("response", bytes, limit);
  return absl::OkStatus();
}

absl::Status ComputeCall::Prepare() {
  ASSIGN_OR_RETURN(Plea plea, direction_ == Direction::kForward
                                  ? Parse<v1::ConvForwardRequest>()
                                  : Parse<v1::ConvBackwardRequest>());
  sample_.backend = std::string(plea.route.backend->name());
  DropUnneeded(&plea.decoded.operation);
  sample_.flops = plea.decoded.operation.flops();
  operation_ = plea.decoded.operation;
  job_.operation = plea.decoded.operation;
  job_.backend = plea.route.backend;
  job_.priority = priority();
  job_.client = client();
  job_.deadline = deadline();
  // Before anything is done for nothing.
  RETURN_IF_ERROR(services().scheduler->CheckRoom(job_));
  RETURN_IF_ERROR(
      buffers_.Accept(plea.decoded, std::move(plea.bytes), reservation()));
  result_regions_ = std::move(plea.decoded.regions.results);
  predictions_ = std::move(plea.route.predictions);
  job_.deterministic = plea.options.deterministic;
  job_.inspection.count_nonfinite = plea.options.count_nonfinite;
  if (plea.options.self_check) {
    job_.inspection.self_check = SelfCheckMode::kRequired;
  } else if (direction_ == Direction::kBackward &&
             services().self_check_sampler->Pick()) {
    job_.inspection.self_check = SelfCheckMode::kSampled;
  }
  job_.source = &buffers_;
  if (job_.backend->device_count() > 0) {
    // Its worker has better to do than copy.
    ASSIGN_OR_RETURN(job_.buffers, buffers_.BringIn(nullptr, *job_.backend, 1));
    job_.source = nullptr;
  }
  job_.keeps_weight = buffers_.OwnsOperand(Operand::kWeight);
  job_.cancelled = cancelled();
  job_.done = [this](JobOutcome outcome) { OnJobDone(std::move(outcome)); };
  return absl::OkStatus();
}

void ComputeCall::OnGone() {
  if (submitted_) services().scheduler->DropDead();
}

void ComputeCall::OnJobDone(JobOutcome outcome) {
  sample_.queued = true;
  sample_.bytes_copied = buffers_.copied_bytes();
  AddStages(outcome, submitted_at_, &sample_);
  sample_.planned = outcome.planned;
  sample_.plan_cache_hit = outcome.plan_cache_hit;
  sample_.ran = outcome.status.ok();
  if (outcome.findings.self_check) {
    sample_.self_check = outcome.findings.self_check->passed
                             ? SelfCheckOutcome::kPassed
                             : SelfCheckOutcome::kFailed;
    if (!outcome.findings.self_check->passed) {
      spdlog::warn("self-check failed: {} by {}", ToString(operation_),
                   outcome.implementation);
    }
  }
  if (!outcome.status.ok()) return End(std::move(outcome.status));
  absl::StatusOr<grpc::ByteBuffer> response =
      direction_ == Direction::kForward
          ? Encode<v1::ConvForwardResponse>(outcome)
          : Encode<v1::ConvBackwardResponse>(outcome);
  if (!response.ok()) return End(response.status());
  End(absl::OkStatus(), &*response);
}

template <typename Response>
absl::StatusOr<grpc::ByteBuffer> ComputeCall::Encode(
    const JobOutcome& outcome) {
  const absl::Time start = absl::Now();
  sample_.bytes_sent = buffers_.result_bytes();
  std::vector<grpc::Slice> payloads = buffers_.TakeResults(reservation());
  sample_.bytes_copied = buffers_.copied_bytes();
  Response head;
  int payload_index = 0;
  for (size_t i = 0; i < operation_.results.size(); ++i) {
    const ResultRequest& result = operation_.results[i];
    v1::NamedTensor* named = head.add_results();
    named->set_which(EncodeResult(result.which));
    *named->mutable_tensor() =
        result_regions_[i]
            ? EncodeTensor(result.descriptor, *result_regions_[i])
            : EncodeTensor(result.descriptor, payload_index++);
  }
  // What is still to come, serialising some hundred bytes, takes microseconds.
  sample_.times.encode.Add(start, absl::Now());
  sample_.times.total = absl::Now() - arrival();
  EncodeReport(sample_, operation_, outcome, head.mutable_report());
  EncodePredictions(predictions_, head.mutable_report());
  return JoinMessage(head, std::move(payloads));
}

void ComputeCall::Settle(const absl::Status& status) {
  buffers_.Clear();
  if (!status.ok()) sample_.bytes_sent = 0;
}

}  // namespace convgrad
