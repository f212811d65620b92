// Tests self-checks and counts of Inf and NaN in a report.
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

v1::ConvBackwardResponse Call(TestServer& server,
                              const v1::ConvBackwardRequest& request) {
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  const grpc::Status status =
      server.stub().ConvBackward(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(InspectionTest, ReportsNothingUnasked) {
  TestServer server;
  const auto response = Call(server, SeedBackward());
  EXPECT_FALSE(response.report().has_self_check());
  EXPECT_EQ(response.report().statistics_size(), 0);
}

TEST(InspectionTest, ChecksItselfWhenAsked) {
  TestServer server;
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_self_check(true);
  const v1::SelfCheck check = Call(server, request).report().self_check();
  EXPECT_TRUE(check.passed());
  // The seed example has weight 0..3, so the output of 0..8 is 19, 25, 37, 43.
  EXPECT_EQ(check.forward(), 124);
  EXPECT_EQ(check.grad_input(), 124);
  EXPECT_EQ(check.grad_weight(), 124);
  EXPECT_GT(check.bound(), 0);
  EXPECT_GT(check.seconds(), 0);
  server.AwaitMetric("convgrad_self_checks_total{outcome=\"passed\"} 1");
  server.ExpectNothingHeld();
}

TEST(InspectionTest, ChecksItselfForTheCommandLineTool) {
  TestServer server;
  for (const char* command : {" forward", " backward"}) {
    const std::string line = absl::StrCat(
        CONVGRAD_CLIENT_BINARY, command,
        " conv2d_n2_c4_o4_i6_k3_p1_b_res --self_check --count_nonfinite ",
        "--server=", server.address());
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
  }
}

TEST(InspectionTest, ChecksAForwardWhenAsked) {
  TestServer server;
  v1::ConvForwardRequest request = SeedForward();
  request.mutable_options()->set_self_check(true);
  grpc::ClientContext context;
  v1::ConvForwardResponse response;
  ASSERT_TRUE(server.stub().ConvForward(&context, request, &response).ok());
  const v1::SelfCheck& check = response.report().self_check();
  EXPECT_TRUE(check.passed());
  ASSERT_TRUE(check.has_output_error());
  EXPECT_LE(check.output_error(), 1);
  EXPECT_EQ(check.bound(), 0);
  EXPECT_GT(check.seconds(), 0);
  server.AwaitMetric("convgrad_self_checks_total{outcome=\"passed\"} 1");
  server.ExpectNothingHeld();
}

TEST(InspectionTest, ChecksABiasGradientAlone) {
  TestServer server;
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_self_check(true);
  v1::ConvOperation& operation = *request.mutable_operation();
  operation.clear_results();
  operation.add_results()->set_which(v1::RESULT_GRAD_BIAS);
  operation.add_results()->set_which(v1::RESULT_GRAD_RESIDUAL);
  const v1::SelfCheck check = Call(server, request).report().self_check();
  EXPECT_TRUE(check.passed());
  EXPECT_TRUE(check.has_grad_bias_error());
  EXPECT_EQ(check.grad_bias_error(), 0);
  EXPECT_TRUE(check.has_grad_residual_error());
  EXPECT_EQ(check.grad_residual_error(), 0);
  EXPECT_FALSE(check.has_output_error());
  EXPECT_EQ(check.forward(), 0);
  server.ExpectNothingHeld();
}

TEST(InspectionTest, RefusesACheckOfNothing) {
  TestServer server;
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_self_check(true);
  v1::ConvOperation& operation = *request.mutable_operation();
  operation.mutable_results()->DeleteSubrange(1, operation.results_size() - 1);
  grpc::ClientContext context;
  v1::ConvBackwardResponse response;
  const grpc::Status status =
      server.stub().ConvBackward(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(TrailersOf(context).field, "options.self_check");
  server.ExpectNothingHeld();
}

TEST(InspectionTest, ChecksTheShareThatIsConfigured) {
  Config config = TestConfig();
  config.self_check_ratio = 0.5;
  TestServer server(config);
  int checked = 0;
  for (int i = 0; i < 6; ++i) {
    checked += Call(server, SeedBackward()).report().has_self_check();
    // Forwards don't count in the share.
    grpc::ClientContext context;
    v1::ConvForwardResponse response;
    EXPECT_TRUE(
        server.stub().ConvForward(&context, SeedForward(), &response).ok());
    EXPECT_FALSE(response.report().has_self_check());
  }
  EXPECT_EQ(checked, 3);
}

TEST(InspectionTest, CountsInfAndNan) {
  TestServer server;
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_count_nonfinite(true);
  // One Inf in grad_output affects at most four of the nine input gradients,
  // and every weight gradient (0 * Inf is NaN).
  std::vector<float> grad = {std::numeric_limits<float>::infinity(), 1, 1, 1};
  const int payload =
      request.operation().operands().grad_output().inline_().payload_index();
  request.set_payloads(payload, BytesOf(grad));
  const auto report = Call(server, request).report();
  ASSERT_EQ(report.statistics_size(), 2);
  EXPECT_EQ(report.statistics(0).which(), v1::RESULT_GRAD_INPUT);
  EXPECT_GE(report.statistics(0).nonfinite_count(), 4);
  EXPECT_EQ(report.statistics(1).nonfinite_count(), 4);
}

}  // namespace
}  // namespace convgrad
