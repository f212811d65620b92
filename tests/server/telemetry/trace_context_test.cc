#include "server/telemetry/trace_context.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

// The example is from the standard.
constexpr char kExample[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, ReadsIdsAndWhetherTheCallerKeepsSpans) {
  const std::optional<TraceContext> context = ParseTraceparent(kExample);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context->parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled);
}

TEST(TraceContext, OnlyTheLowestBitOfFlagsMeansSampled) {
  std::string text = kExample;
  text.replace(text.size() - 2, 2, "fe");
  ASSERT_TRUE(ParseTraceparent(text));
  EXPECT_FALSE(ParseTraceparent(text)->sampled);
}

TEST(TraceContext, LaterVersionsMayHaveMoreAfterADash) {
  const std::string later = "cc" + std::string(kExample).substr(2);
  EXPECT_TRUE(ParseTraceparent(later));
  EXPECT_TRUE(ParseTraceparent(later + "-what comes then"));
  EXPECT_FALSE(ParseTraceparent(later + "what comes then"));
  EXPECT_FALSE(ParseTraceparent(std::string(kExample) + "-more"));
}

TEST(TraceContext, WhatIsNoneCountsAsNone) {
  const std::string example = kExample;
  EXPECT_FALSE(ParseTraceparent(""));
  for (size_t size = 0; size < example.size(); ++size) {
    EXPECT_FALSE(ParseTraceparent(example.substr(0, size))) << size;
  }
  // Replaces each character by an invalid one, including capitals.
  for (size_t place = 0; place < example.size(); ++place) {
    std::string text = example;
    text[place] = 'G';
    EXPECT_FALSE(ParseTraceparent(text)) << text;
    text[place] = 'A';
    EXPECT_FALSE(ParseTraceparent(text)) << text;
  }
  EXPECT_FALSE(ParseTraceparent("ff" + example.substr(2)));
  std::string no_trace = example;
  no_trace.replace(3, 32, std::string(32, '0'));
  EXPECT_FALSE(ParseTraceparent(no_trace));
  std::string no_parent = example;
  no_parent.replace(36, 16, std::string(16, '0'));
  EXPECT_FALSE(ParseTraceparent(no_parent));
}

}  // namespace
}  // namespace convgrad
