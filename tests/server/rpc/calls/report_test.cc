// Tests the report of a call's work.
#include "server/rpc/calls/report.h"

#include <string>

#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr absl::Time kSubmitted = absl::UnixEpoch();

JobOutcome Ran() {
  JobOutcome outcome;
  outcome.submitted = kSubmitted;
  outcome.implementation = "jit";
  outcome.planned = true;
  outcome.plan_cache_hit = true;
  outcome.queue = absl::Seconds(1);
  outcome.plan = absl::Seconds(2);
  outcome.run.reorder = absl::Seconds(4);
  outcome.run.compute = absl::Seconds(8);
  outcome.run.transfer = absl::Seconds(16);
  outcome.run.steps = {{"conv", absl::Seconds(5)}};
  return outcome;
}

TEST(AddStages, StagesFollowOneAnother) {
  OpSample sample;
  AddStages(Ran(), &sample);
  EXPECT_EQ(sample.times.queue.begin, kSubmitted);
  EXPECT_EQ(sample.times.plan.begin, kSubmitted + absl::Seconds(1));
  EXPECT_EQ(sample.times.reorder.begin, kSubmitted + absl::Seconds(3));
  EXPECT_EQ(sample.times.compute.begin, kSubmitted + absl::Seconds(7));
  EXPECT_EQ(sample.times.compute.end, kSubmitted + absl::Seconds(15));
  EXPECT_FALSE(sample.times.transfer.reached());
}

TEST(AddStages, TheWorkOfOneCallAddsUp) {
  OpSample sample;
  JobOutcome outcome = Ran();
  outcome.run.transferred_bytes = 10;
  AddStages(outcome, &sample);
  outcome.submitted += absl::Minutes(1);
  AddStages(outcome, &sample);
  EXPECT_EQ(sample.times.compute.busy, absl::Seconds(16));
  EXPECT_EQ(sample.times.transfer.busy, absl::Seconds(32));
  EXPECT_EQ(sample.bytes_transferred, 20);
  EXPECT_THAT(sample.steps, ElementsAre(Pair("conv", absl::Seconds(10))));
}

TEST(AddStages, AJobThatFailedHasOnlyWaited) {
  OpSample sample;
  JobOutcome outcome = Ran();
  outcome.planned = false;
  outcome.status = absl::CancelledError();
  AddStages(outcome, &sample);
  EXPECT_EQ(sample.times.queue.busy, absl::Seconds(1));
  EXPECT_FALSE(sample.times.plan.reached());
  EXPECT_FALSE(sample.times.compute.reached());
  EXPECT_TRUE(sample.steps.empty());
}

TEST(EncodeReport, SaysWhatRanAndHowLong) {
  OpSample sample;
  sample.backend = "onednn";
  sample.flops = 7;
  sample.times.admission.busy = absl::Seconds(32);
  sample.times.total = absl::Seconds(64);
  AddStages(Ran(), &sample);
  ConvOperation operation;
  operation.problem = *Parse("linear_n3_c5_o7");
  v1::Report report;
  const Prediction prediction{"onednn", absl::Seconds(1), absl::Seconds(2),
                              absl::Seconds(3)};
  EncodeReport(sample, operation, Ran(), {prediction}, &report);
  EXPECT_EQ(report.backend(), "onednn");
  EXPECT_EQ(report.implementation(), "jit");
  EXPECT_EQ(report.flops(), 7);
  EXPECT_TRUE(report.plan_cache_hit());
  EXPECT_EQ(report.problem(), "linear_n3_c5_o7");
  // The sum of the waits for memory and for a worker.
  EXPECT_EQ(report.seconds().queue(), 33);
  EXPECT_EQ(report.seconds().plan(), 2);
  EXPECT_EQ(report.seconds().reorder(), 4);
  EXPECT_EQ(report.seconds().compute(), 8);
  EXPECT_EQ(report.seconds().total(), 64);
  EXPECT_FALSE(report.has_self_check());
  EXPECT_EQ(report.statistics_size(), 0);
  ASSERT_EQ(report.predictions_size(), 1);
  EXPECT_EQ(report.predictions(0).backend(), "onednn");
  EXPECT_EQ(report.predictions(0).transfer(), 2);
}

TEST(EncodeReport, NamesTheResultOfEachCount) {
  ConvOperation operation;
  operation.problem = *Parse("linear_n3_c5_o7");
  operation.results.resize(2);
  operation.results[0].which = Result::kGradWeight;
  operation.results[1].which = Result::kGradInput;
  JobOutcome outcome = Ran();
  outcome.findings.nonfinite_counts = {3, 0};
  outcome.findings.self_check.emplace();
  outcome.findings.self_check->passed = true;
  outcome.findings.self_check->grad_weight = 0.25;
  v1::Report report;
  EncodeReport({}, operation, outcome, {}, &report);
  ASSERT_EQ(report.statistics_size(), 2);
  EXPECT_EQ(report.statistics(0).which(), v1::RESULT_GRAD_WEIGHT);
  EXPECT_EQ(report.statistics(0).nonfinite_count(), 3);
  EXPECT_EQ(report.statistics(1).which(), v1::RESULT_GRAD_INPUT);
  EXPECT_TRUE(report.self_check().passed());
  EXPECT_EQ(report.self_check().grad_weight(), 0.25);
  EXPECT_FALSE(report.self_check().has_output_error());
}

TEST(SetEnd, HasTheCodeAndTheReasonOfOurErrors) {
  OpSample sample;
  SetEnd(MakeError(absl::StatusCode::kAborted, {Reason::kBusy, "", "", ""}),
         &sample);
  EXPECT_EQ(sample.code, absl::StatusCode::kAborted);
  EXPECT_EQ(sample.reason, "BUSY");
  OpSample plain;
  SetEnd(absl::UnknownError("gRPC's"), &plain);
  EXPECT_EQ(plain.code, absl::StatusCode::kUnknown);
  EXPECT_EQ(plain.reason, "");
}

}  // namespace
}  // namespace convgrad
