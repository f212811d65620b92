#include "server/rpc/calls/report.h"

#include <optional>
#include <string>

#include "backends/core/status.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

v1::SelfCheck EncodeSelfCheck(const SelfCheckReport& check) {
  v1::SelfCheck message;
  message.set_passed(check.passed);
  message.set_forward(check.forward.value_or(0));
  message.set_grad_input(check.grad_input.value_or(0));
  message.set_grad_weight(check.grad_weight.value_or(0));
  message.set_bound(check.bound);
  message.set_seconds(absl::ToDoubleSeconds(check.elapsed));
  if (check.output_error) message.set_output_error(*check.output_error);
  if (check.grad_bias_error) {
    message.set_grad_bias_error(*check.grad_bias_error);
  }
  if (check.grad_residual_error) {
    message.set_grad_residual_error(*check.grad_residual_error);
  }
  return message;
}

void EncodeFindings(const ConvOperation& operation, const Findings& findings,
                    v1::Report* report) {
  if (findings.self_check) {
    *report->mutable_self_check() = EncodeSelfCheck(*findings.self_check);
  }
  for (size_t i = 0; i < findings.nonfinite_counts.size(); ++i) {
    v1::ResultStatistics* message = report->add_statistics();
    message->set_which(EncodeResult(operation.results[i].which));
    message->set_nonfinite_count(findings.nonfinite_counts[i]);
  }
}

}  // namespace

void EncodeReport(const OpSample& sample, const ConvOperation& operation,
                  const JobOutcome& outcome,
                  const std::vector<Prediction>& predictions,
                  v1::Report* report) {
  report->set_backend(sample.backend);
  report->set_implementation(outcome.implementation);
  report->set_flops(sample.flops);
  report->set_plan_cache_hit(outcome.plan_cache_hit);
  report->set_problem(ToString(operation.problem));
  v1::StageTimes* seconds = report->mutable_seconds();
  seconds->set_receive(absl::ToDoubleSeconds(sample.times.receive.busy));
  seconds->set_decode(absl::ToDoubleSeconds(sample.times.decode.busy));
  seconds->set_queue(absl::ToDoubleSeconds(sample.times.Waiting()));
  seconds->set_plan(absl::ToDoubleSeconds(sample.times.plan.busy));
  seconds->set_reorder(absl::ToDoubleSeconds(sample.times.reorder.busy));
  seconds->set_compute(absl::ToDoubleSeconds(sample.times.compute.busy));
  seconds->set_transfer(absl::ToDoubleSeconds(sample.times.transfer.busy));
  seconds->set_encode(absl::ToDoubleSeconds(sample.times.encode.busy));
  seconds->set_total(absl::ToDoubleSeconds(sample.times.total));
  EncodeFindings(operation, outcome.findings, report);
  for (const Prediction& prediction : predictions) {
    v1::Prediction* message = report->add_predictions();
    message->set_backend(std::string(prediction.backend));
    message->set_wire(absl::ToDoubleSeconds(prediction.wire));
    message->set_transfer(absl::ToDoubleSeconds(prediction.transfer));
    message->set_compute(absl::ToDoubleSeconds(prediction.compute));
  }
}

void AddStages(const JobOutcome& outcome, OpSample* sample) {
  StageTimes& times = sample->times;
  absl::Time now = outcome.submitted;
  sample->queued = true;
  sample->planned = outcome.planned;
  const auto add = [&now](absl::Duration elapsed, StageTime* stage) {
    stage->Add(now, now + elapsed);
    now += elapsed;
  };
  add(outcome.queue, &times.queue);
  if (outcome.planned) add(outcome.plan, &times.plan);
  if (!outcome.status.ok()) return;
  add(outcome.run.reorder, &times.reorder);
  add(outcome.run.compute, &times.compute);
  for (const auto& [step, time] : outcome.run.steps) {
    sample->steps[step] += time;
  }
  sample->reference_steps += outcome.run.reference_steps;
  if (outcome.run.transferred_bytes == 0) return;
  add(outcome.run.transfer, &times.transfer);
  sample->bytes_transferred += outcome.run.transferred_bytes;
}

void SetEnd(const absl::Status& status, OpSample* sample) {
  sample->code = status.code();
  const std::optional<ErrorDetail> detail = DetailOf(status);
  if (!status.ok() && detail) {
    sample->reason = std::string(ReasonName(detail->reason));
  }
}

}  // namespace convgrad
