#include "client/cpp/command_line/activity/server_activity.h"

#include <cmath>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::SizeIs;

// Histograms have ten calls up to 1 s, ten up to 2 s and none above, where $n
// is 10.
constexpr char kMetrics[] =
    "grpc_server_handled_total{grpc_method=\"A\",grpc_code=\"OK\"} $n\n"
    "grpc_server_handled_total{grpc_method=\"A\",grpc_code=\"Internal\"} $n\n"
    "grpc_server_handled_total{grpc_method=\"B\",grpc_code=\"OK\"} 0\n"
    "grpc_server_handling_seconds_bucket{grpc_method=\"A\",le=\"1\"} $n\n"
    "grpc_server_handling_seconds_bucket{grpc_method=\"A\",le=\"2\"} $n$n\n"
    "grpc_server_handling_seconds_bucket{grpc_method=\"A\",le=\"+Inf\"} $n$n\n"
    "convgrad_requests_total{op=\"forward\",backend=\"onednn\",dtype=\"f32\","
    "code=\"OK\"} $n\n"
    "convgrad_flops_total{op=\"forward\",backend=\"onednn\",dtype=\"f32\","
    "code=\"OK\"} 4e$n\n"
    "convgrad_compute_seconds_bucket{op=\"forward\",backend=\"onednn\","
    "dtype=\"f32\",code=\"OK\",le=\"1\"} 0\n"
    "convgrad_compute_seconds_bucket{op=\"forward\",backend=\"onednn\","
    "dtype=\"f32\",code=\"OK\",le=\"+Inf\"} $n\n"
    "convgrad_network_step_seconds_total{backend=\"onednn\",step=\"relu "
    "forward\"} 0.$n\n"
    "convgrad_network_step_seconds_total{backend=\"onednn\",step=\"conv "
    "forward\"} $n\n"
    "convgrad_network_step_seconds_total{backend=\"onednn\",step=\"mul "
    "forward\"} 0\n"
    "convgrad_plan_cache_hits_total 3\n"
    "convgrad_plan_cache_misses_total 1\n"
    "convgrad_queue_depth 5\n"
    "convgrad_memory_used_bytes 6\n"
    "convgrad_sessions 7\n"
    "convgrad_kept_tensors 8\n"
    "convgrad_kept_programs 11\n"
    "convgrad_kept_tapes 12\n"
    "convgrad_kept_tape_bytes 13\n"
    "convgrad_kept_bytes 9\n"
    "convgrad_kept_capacity_bytes 10\n";

MetricsText With(const std::string& n) {
  return *MetricsText::Parse(absl::StrReplaceAll(
      kMetrics, {{"$n$n", n == "0" ? "0" : "20"}, {"$n", n}}));
}

TEST(ServerActivity, IsRatesAndQuantilesBetweenTwoLooks) {
  const ServerActivity activity =
      ActivityBetween(With("0"), With("10"), absl::Seconds(2));
  ASSERT_THAT(activity.methods, SizeIs(1));
  const MethodActivity& method = activity.methods[0];
  EXPECT_EQ(method.method, "A");
  EXPECT_EQ(method.rate, 10);
  EXPECT_EQ(method.error_rate, 5);
  EXPECT_DOUBLE_EQ(method.p50, 1);
  EXPECT_DOUBLE_EQ(method.p99, 1.98);
  ASSERT_THAT(activity.operations, SizeIs(1));
  const OperationActivity& operation = activity.operations[0];
  EXPECT_EQ(operation.op, "forward");
  EXPECT_EQ(operation.backend, "onednn");
  EXPECT_EQ(operation.dtype, "f32");
  EXPECT_EQ(operation.rate, 5);
  EXPECT_DOUBLE_EQ(operation.gflops_per_second, 20 - 2e-9);
  EXPECT_EQ(operation.compute_p50, 1);  // Above the last bound: that bound.
  EXPECT_TRUE(std::isnan(operation.queue_p99));
  ASSERT_THAT(activity.steps, SizeIs(2));
  EXPECT_EQ(activity.steps[0].step, "conv forward");
  EXPECT_EQ(activity.steps[0].backend, "onednn");
  EXPECT_EQ(activity.steps[0].busy, 5);
  EXPECT_EQ(activity.steps[1].step, "relu forward");
  EXPECT_DOUBLE_EQ(activity.steps[1].busy, 0.05);
  EXPECT_EQ(activity.queued, 5);
  EXPECT_EQ(activity.memory_bytes, 6);
  EXPECT_EQ(activity.sessions, 7);
  EXPECT_EQ(activity.kept_tensors, 8);
  EXPECT_EQ(activity.kept_programs, 11);
  EXPECT_EQ(activity.kept_tapes, 12);
  EXPECT_EQ(activity.kept_tape_bytes, 13);
  EXPECT_EQ(activity.kept_bytes, 9);
  EXPECT_EQ(activity.kept_capacity_bytes, 10);
  EXPECT_TRUE(std::isnan(activity.plan_hits));
}

TEST(ServerActivity, CountsFromZeroAfterARestart) {
  const MetricsText none = *MetricsText::Parse("");
  const ServerActivity activity =
      ActivityBetween(With("10"), none, absl::Seconds(1));
  EXPECT_THAT(activity.methods, SizeIs(0));
  EXPECT_EQ(
      ActivityBetween(With("10"), With("8"), absl::Seconds(1)).methods[0].rate,
      16);
  EXPECT_EQ(ActivityBetween(none, With("1"), absl::Seconds(1)).plan_hits, 0.75);
}

}  // namespace
}  // namespace convgrad
