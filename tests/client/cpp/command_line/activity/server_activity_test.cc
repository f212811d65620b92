#include "client/cpp/command_line/activity/server_activity.h"

#include <cmath>
#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace convgrad {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

using Json = nlohmann::ordered_json;

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
  const Json activity =
      ActivityBetween(With("0"), With("10"), absl::Seconds(2));
  ASSERT_THAT(activity.at("methods"), SizeIs(1));
  const Json& method = activity.at("methods")[0];
  EXPECT_EQ(method.at("method"), "A");
  EXPECT_EQ(method.at("calls_per_second"), 10);
  EXPECT_EQ(method.at("errors_per_second"), 5);
  EXPECT_DOUBLE_EQ(method.at("p50_seconds"), 1);
  EXPECT_DOUBLE_EQ(method.at("p99_seconds"), 1.98);
  ASSERT_THAT(activity.at("operations"), SizeIs(1));
  const Json& operation = activity.at("operations")[0];
  EXPECT_EQ(operation.at("op"), "forward");
  EXPECT_EQ(operation.at("backend"), "onednn");
  EXPECT_EQ(operation.at("dtype"), "f32");
  EXPECT_EQ(operation.at("operations_per_second"), 5);
  EXPECT_DOUBLE_EQ(operation.at("gflops_per_second"), 20 - 2e-9);
  // Above the last bound: that bound.
  EXPECT_EQ(operation.at("compute_p50_seconds"), 1);
  EXPECT_TRUE(std::isnan(operation.at("queue_p99_seconds").get<double>()));
  ASSERT_THAT(activity.at("steps"), SizeIs(2));
  const Json& step = activity.at("steps")[0];
  EXPECT_EQ(step.at("step"), "conv forward");
  EXPECT_EQ(step.at("backend"), "onednn");
  EXPECT_EQ(step.at("busy_seconds_per_second"), 5);
  EXPECT_EQ(activity.at("steps")[1].at("step"), "relu forward");
  EXPECT_DOUBLE_EQ(activity.at("steps")[1].at("busy_seconds_per_second"), 0.05);
  EXPECT_EQ(activity.at("jobs_waiting"), 5);
  EXPECT_EQ(activity.at("memory_bytes"), 6);
  EXPECT_EQ(activity.at("sessions"), 7);
  EXPECT_EQ(activity.at("kept_tensors"), 8);
  EXPECT_EQ(activity.at("kept_programs"), 11);
  EXPECT_EQ(activity.at("kept_tapes"), 12);
  EXPECT_EQ(activity.at("kept_tape_bytes"), 13);
  EXPECT_EQ(activity.at("kept_bytes"), 9);
  EXPECT_EQ(activity.at("kept_capacity_bytes"), 10);
  EXPECT_TRUE(std::isnan(activity.at("plan_hit_share").get<double>()));
}

TEST(ServerActivity, CountsFromZeroAfterARestart) {
  const MetricsText none = *MetricsText::Parse("");
  EXPECT_THAT(ActivityBetween(With("10"), none, absl::Seconds(1)).at("methods"),
              SizeIs(0));
  const Json restarted =
      ActivityBetween(With("10"), With("8"), absl::Seconds(1));
  EXPECT_EQ(restarted.at("methods")[0].at("calls_per_second"), 16);
  EXPECT_EQ(
      ActivityBetween(none, With("1"), absl::Seconds(1)).at("plan_hit_share"),
      0.75);
}

TEST(ServerActivity, AsTextHasARowForEachThatWasBusy) {
  const std::string text =
      ActivityText(ActivityBetween(With("0"), With("10"), absl::Seconds(2)));
  for (const char* line :
       {"over 2.0 s: 0.0 MB/s received, 0.0 MB/s sent, 0.0 refused a second\n",
        "jobs 5 waiting, 0 running; 0 calls wait for memory\n",
        "memory 0.0 of 0.0 MB; 0 plans in 0.0 MB, no hits\n",
        "sessions 7, with 8 tensors, 11 programs and 12 tapes (0.0 MB) in 0.0 "
        "of 0.0 MB\n\nmethod ",
        "\nA                           10.0       5.0  1000.000  1980.000\n",
        "\nforward   onednn     f32         5.0      20.0          -     "
        "1000.000     1000.000\n",
        "\nconv forward                onednn     5000.0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(
      ActivityText(ActivityBetween(With("10"), With("10"), absl::Seconds(2))),
      Not(HasSubstr("forward")));
}

}  // namespace
}  // namespace convgrad
