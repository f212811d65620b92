// Tests results over a real socket, with generated and hand-written clients.
#include <cmath>

#include "absl/strings/match.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

class AnswersTest : public testing::Test {
 protected:
  v1::ConvBackwardResponse Backward(const v1::ConvBackwardRequest& request) {
    grpc::ClientContext context;
    v1::ConvBackwardResponse response;
    const grpc::Status status =
        server_.stub().ConvBackward(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ConvForwardResponse Forward(const v1::ConvForwardRequest& request) {
    grpc::ClientContext context;
    v1::ConvForwardResponse response;
    const grpc::Status status =
        server_.stub().ConvForward(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  TestServer server_;
};

TEST_F(AnswersTest, SeedExampleBackward) {
  const v1::ConvBackwardResponse response = Backward(SeedBackward());
  ASSERT_EQ(response.results_size(), 2);
  EXPECT_EQ(response.results(0).which(), v1::RESULT_GRAD_INPUT);
  EXPECT_EQ(response.results(1).which(), v1::RESULT_GRAD_WEIGHT);
  EXPECT_THAT(response.results(0).tensor().dims(), ElementsAre(1, 1, 3, 3));
  EXPECT_EQ(response.results(1).tensor().layout(), v1::LAYOUT_OIX);
  ASSERT_EQ(response.payloads_size(), 2);
  EXPECT_THAT(FloatsOf(response.payloads(0)),
              ElementsAre(0, 1, 1, 2, 6, 4, 2, 5, 3));
  EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(8, 12, 20, 24));
  server_.ExpectNothingHeld();
}

TEST_F(AnswersTest, SeedExampleForward) {
  const v1::ConvForwardResponse response = Forward(SeedForward());
  ASSERT_EQ(response.payloads_size(), 1);
  EXPECT_THAT(FloatsOf(response.payloads(0)), ElementsAre(8, 12, 20, 24));
  server_.ExpectNothingHeld();
}

TEST_F(AnswersTest, FusedReluMasksByTheGivenOutput) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_problem()->set_activation(v1::ACTIVATION_RELU);
  v1::Tensor* output = operation->mutable_operands()->mutable_output();
  *output = operation->operands().grad_output();
  output->mutable_inline_()->set_payload_index(3);
  request.add_payloads(BytesOf({1, 0, -1, NAN}));
  request.set_payloads(2, BytesOf({1, INFINITY, NAN, INFINITY}));
  const v1::ConvBackwardResponse response = Backward(request);
  EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(0, 1, 3, 4));
}

TEST_F(AnswersTest, BiasGradientNeedsGradOutputOnly) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_operands()->clear_input();
  operation->mutable_operands()->clear_weight();
  operation->mutable_operands()
      ->mutable_grad_output()
      ->mutable_inline_()
      ->set_payload_index(0);
  operation->clear_results();
  v1::ResultRequest* result = operation->add_results();
  result->set_which(v1::RESULT_GRAD_BIAS);
  result->mutable_bias_dims();  // (): a single number.
  request.clear_payloads();
  request.add_payloads(BytesOf({1, 2, 3, 4}));
  const v1::ConvBackwardResponse response = Backward(request);
  EXPECT_THAT(FloatsOf(response.payloads(0)), ElementsAre(10));
  EXPECT_EQ(response.results(0).tensor().dims_size(), 0);
}

TEST_F(AnswersTest, EmptyBatchGivesEmptyAndZeroResults) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_problem()->set_input_dims(0, 0);
  operation->mutable_operands()->mutable_input()->set_dims(0, 0);
  operation->mutable_operands()->mutable_grad_output()->set_dims(0, 0);
  request.set_payloads(0, "");
  request.set_payloads(2, "");
  const v1::ConvBackwardResponse response = Backward(request);
  ASSERT_EQ(response.payloads_size(), 2);
  EXPECT_EQ(response.payloads(0), "");
  EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(0, 0, 0, 0));
  server_.ExpectNothingHeld();
}

TEST_F(AnswersTest, OneMayServeTwoOperands) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  operation->mutable_operands()
      ->mutable_grad_output()
      ->mutable_inline_()
      ->set_payload_index(1);
  request.mutable_payloads()->RemoveLast();
  const v1::ConvBackwardResponse response = Backward(request);
  EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(19, 25, 37, 43));
}

TEST_F(AnswersTest, EachBackendGivesTheSeedExample) {
  for (auto choice : {v1::BACKEND_CHOICE_AUTO, v1::BACKEND_CHOICE_REFERENCE}) {
    v1::ConvBackwardRequest request = SeedBackward();
    request.mutable_options()->set_backend(choice);
    const v1::ConvBackwardResponse response = Backward(request);
    EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(8, 12, 20, 24));
  }
}

TEST_F(AnswersTest, ReportsWhereTheTimeWent) {
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_backend(v1::BACKEND_CHOICE_REFERENCE);
  EXPECT_FALSE(Backward(request).report().plan_cache_hit());
  const v1::Report report = Backward(request).report();
  EXPECT_EQ(report.backend(), "reference");
  EXPECT_NE(report.implementation(), "");
  EXPECT_TRUE(report.plan_cache_hit());
  EXPECT_EQ(report.flops(), 2 * 2 * 4 * 4);
  EXPECT_TRUE(absl::StartsWith(report.problem(), "conv2d_n1_c1_o1_i3x3_k2x2"));
  const v1::StageTimes& seconds = report.seconds();
  const double stages = seconds.receive() + seconds.decode() + seconds.queue() +
                        seconds.plan() + seconds.reorder() + seconds.compute() +
                        seconds.encode();
  EXPECT_GT(stages, 0);
  EXPECT_LE(stages, seconds.total() * 1.001);
}

TEST_F(AnswersTest, ReadsPayloadsBeforeTheirDescriptors) {
  v1::ConvBackwardRequest payloads;
  v1::ConvBackwardRequest head = SeedBackward();
  payloads.mutable_payloads()->Swap(head.mutable_payloads());
  const RawReply reply =
      CallRaw(server_.channel(), "ConvBackward",
              payloads.SerializeAsString() + head.SerializeAsString());
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  v1::ConvBackwardResponse response;
  ASSERT_TRUE(response.ParseFromString(reply.response));
  EXPECT_THAT(FloatsOf(response.payloads(1)), ElementsAre(8, 12, 20, 24));
}

TEST_F(AnswersTest, RawClientGetsTheSameBytes) {
  const auto client = Client::Connect({server_.address()});
  ASSERT_TRUE(client.ok()) << client.status();
  const v1::ConvBackwardRequest request = SeedBackward();
  ConvProblem problem = *Parse("conv2d_n1_c1_o1_i3x3_k2x2");
  OperationCall call;
  call.operation.direction = Direction::kBackward;
  call.operation.problem = problem;
  const auto add = [&](Operand which, Layout layout, int payload) {
    call.operation.operand(which) = {DataType::kF32, layout,
                                     DimsOf(problem, which)};
    const std::string& bytes = request.payloads(payload);
    call.operands[static_cast<size_t>(which)] = absl::MakeSpan(
        reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  };
  add(Operand::kInput, Layout::kNCX, 0);
  add(Operand::kWeight, Layout::kOIX, 1);
  add(Operand::kGradOutput, Layout::kNCX, 2);
  call.operation.results = {
      {Result::kGradInput, {DataType::kF32, Layout::kNCX, InputDims(problem)}},
      {Result::kGradWeight,
       {DataType::kF32, Layout::kOIX, WeightDims(problem)}}};
  const auto reply = (*client)->Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const v1::ConvBackwardResponse stock = Backward(request);
  ASSERT_EQ(reply->results.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const auto& data = reply->results[i].data;
    EXPECT_EQ(
        std::string(reinterpret_cast<const char*>(data.data()), data.size()),
        stock.payloads(i));
  }
}

TEST_F(AnswersTest, CapabilitiesNameBackendsAndLimits) {
  grpc::ClientContext context;
  v1::GetCapabilitiesResponse response;
  const grpc::Status status =
      server_.stub().GetCapabilities(&context, {}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.server_version(), Version());
  EXPECT_EQ(response.workers(), 1);
  EXPECT_EQ(response.threads_per_worker(), 1);
  EXPECT_EQ(response.limits().memory_budget_bytes(), 128 << 20);
  EXPECT_EQ(response.limits().max_message_bytes(),
            server_.server().config().max_message_bytes);
  ASSERT_GE(response.backends_size(), 1);
  const v1::BackendCapabilities& last =
      response.backends(response.backends_size() - 1);
  EXPECT_EQ(last.name(), "reference");
  EXPECT_TRUE(last.available());
  EXPECT_GE(last.dtypes_size(), 3);
}

}  // namespace
}  // namespace convgrad
