#include "client/cpp/command_line/activity/metrics_text.h"

#include <cmath>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(MetricsText, ReadsWhatTheFormatHas) {
  const auto metrics = MetricsText::Parse(
      "# HELP calls_total Calls.\n# TYPE calls_total counter\n"
      "calls_total{op=\"forward\",code=\"OK\"} 3\n"
      "calls_total{op=\"backward\",code=\"OK\"} 4 1395066363000\n"
      "calls_total{op=\"backward\",code=\"Internal\"} 0.5\n"
      "\nqueue_depth 7\r\n"
      "seconds_bucket{le=\"+Inf\",} 9\n"
      "odd{text=\"a \\\"b\\\\ \\n, c=}\"} NaN\n");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->Sum("calls_total"), 7.5);
  EXPECT_EQ(metrics->Sum("calls_total", {{"op", "backward"}}), 4.5);
  EXPECT_EQ(metrics->Sum("calls_total", {{"op", "b"}}), 0);
  EXPECT_EQ(metrics->Sum("queue_depth"), 7);
  EXPECT_EQ(metrics->Sum("none"), 0);
  EXPECT_EQ(metrics->Family("seconds_bucket")[0].labels.at("le"), "+Inf");
  const auto& odd = metrics->Family("odd")[0];
  EXPECT_EQ(odd.labels.at("text"), "a \"b\\ \n, c=}");
  EXPECT_TRUE(std::isnan(odd.value));
}

TEST(MetricsText, NamesTheLineThatIsNone) {
  for (const char* line :
       {"<html>", "calls_total", "calls_total{op=\"forward} 3", "calls{op} 3",
        "calls{op=\"forward\" 3", "calls_total three", "calls{op=forward} 3"}) {
    const auto metrics = MetricsText::Parse(line);
    ASSERT_FALSE(metrics.ok()) << line;
    EXPECT_NE(metrics.status().message().find(line), std::string::npos)
        << metrics.status();
  }
}

}  // namespace
}  // namespace convgrad
