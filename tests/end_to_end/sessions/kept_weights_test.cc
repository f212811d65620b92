// Tests repeated weights, over a real socket and on the real CPU backend.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"
#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {
namespace {

// Returns conv2d_n1_c64_o64_i14_k3_p1 with a weight of 144 KiB that depends on
// `seed`.
v1::ConvBackwardRequest Request(int seed) {
  v1::ConvBackwardRequest request = SeedBackward();
  v1::ConvOperation* operation = request.mutable_operation();
  v1::ConvProblem* problem = operation->mutable_problem();
  problem->Clear();
  for (int64_t dim : {1, 64, 14, 14}) problem->add_input_dims(dim);
  problem->set_out_channels(64);
  problem->add_kernel(3);
  problem->add_pad_begin(1);
  problem->add_pad_end(1);
  v1::Operands* operands = operation->mutable_operands();
  request.clear_payloads();
  const auto fill = [&](v1::Tensor* tensor, std::vector<int64_t> dims) {
    size_t count = 1;
    tensor->clear_dims();
    for (int64_t dim : dims) {
      tensor->add_dims(dim);
      count *= dim;
    }
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((i * 31 + seed) % 17) / 7 - 1;
    }
    tensor->mutable_inline_()->set_payload_index(request.payloads_size());
    request.add_payloads(BytesOf(values));
  };
  fill(operands->mutable_input(), {1, 64, 14, 14});
  fill(operands->mutable_weight(), {64, 64, 3, 3});
  fill(operands->mutable_grad_output(), {1, 64, 14, 14});
  return request;
}

TEST(KeptWeights, AHitChangesNoBit) {
  TestServer server;
  const auto backward = [&](int seed) {
    grpc::ClientContext context;
    v1::ConvBackwardResponse response;
    const grpc::Status status =
        server.stub().ConvBackward(&context, Request(seed), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return std::vector<std::string>(response.payloads().begin(),
                                    response.payloads().end());
  };
  const std::vector<std::string> first = backward(1);
  const std::vector<std::string> other = backward(2);
  EXPECT_NE(first, other);
  EXPECT_EQ(backward(1), first);
  EXPECT_EQ(
      server.server().gauges().SumOf("convgrad_weight_cache_misses_total"), 1);
  EXPECT_GT(server.server().gauges().SumOf("convgrad_weight_cache_bytes"), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(backward(1), first);
    EXPECT_EQ(backward(2), other);
  }
  EXPECT_EQ(
      server.server().gauges().SumOf("convgrad_weight_cache_misses_total"), 2);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_weight_cache_hits_total"),
            5);
  server.ExpectNothingHeld();
}

// A session knows that its weight is unchanged, so the second call finds it
// prepared. A new tensor of the same name isn't mistaken for the old one.
TEST(KeptWeights, ASessionsWeightIsPreparedOnce) {
  TestServer server;
  SessionClient client(server.channel());
  const auto put = [&](int seed) {
    const v1::ConvBackwardRequest request = Request(seed);
    const v1::Tensor& weight = request.operation().operands().weight();
    EXPECT_TRUE(client
                    .Put("w", weight,
                         request.payloads(weight.inline_().payload_index()))
                    .status.ok());
  };
  const auto backward = [&](bool is_kept) {
    v1::ConvBackwardRequest request = Request(1);
    if (is_kept) {
      v1::Tensor* weight =
          request.mutable_operation()->mutable_operands()->mutable_weight();
      const int index = weight->inline_().payload_index();
      weight->mutable_kept()->set_tensor_id("w");
      // The server refuses payloads that no tensor names.
      auto* last = request.mutable_operation()
                       ->mutable_operands()
                       ->mutable_grad_output();
      request.set_payloads(index, request.payloads(2));
      request.mutable_payloads()->RemoveLast();
      last->mutable_inline_()->set_payload_index(index);
    }
    const auto reply = SessionClient::Call<v1::ConvGrad::Stub>(
        &client.conv(), &v1::ConvGrad::Stub::ConvBackward, request,
        {client.id()});
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    return std::vector<std::string>(reply.response.payloads().begin(),
                                    reply.response.payloads().end());
  };
  const std::vector<std::string> expected = backward(false);
  put(1);
  EXPECT_EQ(backward(true), expected);
  EXPECT_EQ(
      server.server().gauges().SumOf("convgrad_weight_cache_misses_total"), 1);
  EXPECT_EQ(backward(true), expected);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_weight_cache_hits_total"),
            1);
  put(2);
  EXPECT_NE(backward(true), expected);
  put(1);
  EXPECT_EQ(backward(true), expected);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_weight_cache_hits_total"),
            1);
}

// The third inference with the same parameters finds them prepared; one with
// other parameters never does.
TEST(KeptWeights, ANetworksWeightsArePreparedOnce) {
  TestServer server;
  NetworkClient client(server.channel());
  const auto numbers = [](int64_t count, int seed) {
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((i * 31 + seed) % 17) / 7 - 1;
    }
    return values;
  };
  const auto put = [&](int seed) {
    client.Put("w", {64, 64, 3, 3}, numbers(64 * 64 * 9, seed));
  };
  put(1);
  client.Put("b", {64}, numbers(64, 1));
  const auto loaded = client.Load("net",
                                  "input x\n"
                                  "parameter w [64, 64, 3, 3]\n"
                                  "parameter b [64]\n"
                                  "y = conv(x, w, b, padding=1)\n"
                                  "z = relu(y)\n"
                                  "output z\n");
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.error_message();
  const auto infer = [&] {
    v1::RunProgramRequest request;
    request.set_program("net");
    AddValue("x", {1, 64, 7, 7}, numbers(64 * 49, 3), request.mutable_inputs(),
             &request);
    const auto reply = client.Infer(request);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    return std::string(reply.response.payloads(0));
  };
  const std::string first = infer();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(infer(), first);
  EXPECT_EQ(
      server.server().gauges().SumOf("convgrad_weight_cache_misses_total"), 1);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_weight_cache_hits_total"),
            2);
  put(2);
  const std::string second = infer();
  EXPECT_NE(second, first);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(infer(), second);
  EXPECT_EQ(
      server.server().gauges().SumOf("convgrad_weight_cache_misses_total"), 2);
  put(1);
  EXPECT_EQ(infer(), first);
}

}  // namespace
}  // namespace convgrad
