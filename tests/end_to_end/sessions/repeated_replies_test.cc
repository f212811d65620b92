// Tests that repeats of a change get the same reply, byte for byte, whatever
// happened to earlier attempts, and that the change takes effect once.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/sessions/call_in_flight.h"
#include "tests/end_to_end/sessions/network_client.h"
#include "tests/end_to_end/sessions/tensor_stream.h"

namespace convgrad {
namespace {

constexpr char kNet[] = R"(
input x
parameter w [2, 3]
y = linear(x, w)
output y
)";

class RepeatedReplies : public testing::Test {
 protected:
  // Returns a configuration with memory for two versions of the stream's
  // tensor.
  static Config Large() {
    Config config = TestConfig();
    config.memory_budget_bytes *= 4;
    return config;
  }

  RepeatedReplies() : server_(Large()), client_(server_.channel()) {
    client_.Put("w", {2, 3}, {1, 2, 3, 4, 5, 6});
    EXPECT_TRUE(client_.Load("net", kNet).status.ok());
  }

  // Makes a change whose first attempt is cancelled, and repeats it.
  void Expect(const std::string& method,
              const google::protobuf::Message& request) {
    SCOPED_TRACE(method);
    const std::string bytes = request.SerializeAsString();
    ChangeMetadata change = client_.session().Next();
    const auto attempt = [&] {
      return std::make_unique<CallInFlight>(
          server_.channel(), "/convgrad.v1." + method, bytes, change);
    };
    {
      // The attempt is lost before it runs, while it runs, or on the way back.
      auto lost = attempt();
      lost->Cancel();
      lost->Await();
    }
    auto beside = attempt();
    auto first = attempt()->Await();
    if (GoesOn(first.status, &change)) first = attempt()->Await();
    const auto second = attempt()->Await();
    ExpectAlike(first, second, change.sequence);
    beside->Await();
  }

  // Returns whether the change failed by its cancellation, so that the client
  // continues in the next epoch.
  bool GoesOn(const grpc::Status& status, ChangeMetadata* change) {
    if (status.error_code() != grpc::StatusCode::ABORTED) return false;
    client_.session().Failed();
    *change = client_.session().Next();
    return true;
  }

  template <typename Response>
  void ExpectAlike(const SessionReply<Response>& first,
                   const SessionReply<Response>& second, int64_t number) {
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    ASSERT_TRUE(second.status.ok()) << second.status.error_message();
    EXPECT_EQ(BytesIn(first.response), BytesIn(second.response));
    EXPECT_EQ(first.number, number);
    EXPECT_EQ(second.number, number);
    client_.session().Committed();
  }
  static std::string BytesIn(const std::string& response) { return response; }
  static std::string BytesIn(const v1::PutTensorsResponse& response) {
    return response.SerializeAsString();
  }

  v1::RunProgramRequest Run(const std::string& tape) {
    v1::RunProgramRequest request;
    request.set_program("net");
    request.set_tape(tape);
    AddValue("x", {2, 3}, {1, 2, 3, 4, 5, 6}, request.mutable_inputs(),
             &request);
    return request;
  }

  TestServer server_;
  NetworkClient client_;
};

TEST_F(RepeatedReplies, OfTensors) {
  for (int round = 0; round < 10; ++round) {
    Expect("ConvGradSessions/PutTensors",
           SessionClient::PutOf("x", TensorOf(v1::LAYOUT_NCX, {1, 3, 3, 1}),
                                BytesOf(std::vector<float>(9, 1))));
    v1::ConvForwardRequest forward = SeedForward();
    forward.mutable_operation()
        ->mutable_results(0)
        ->mutable_kept()
        ->set_tensor_id("y");
    Expect("ConvGrad/ConvForward", forward);
    v1::ConvBackwardRequest backward = SeedBackward();
    v1::ResultRequest* result =
        backward.mutable_operation()->mutable_results(1);
    result->mutable_kept()->set_tensor_id("dw");
    // The response carries the other gradient.
    Expect("ConvGrad/ConvBackward", backward);
    v1::DropTensorsRequest drop;
    drop.add_names("x");
    Expect("ConvGradSessions/DropTensors", drop);
  }
}

TEST_F(RepeatedReplies, OfNetworks) {
  for (int round = 0; round < 10; ++round) {
    const std::string tape = absl::StrCat("tape", round);
    Expect("ConvGradNetworks/RunProgram", Run(tape));
    v1::BackwardProgramRequest backward;
    backward.set_tape(tape);
    AddValue("y", {2, 2}, {1, 2, 3, 4}, backward.mutable_output_gradients(),
             &backward);
    backward.add_input_gradients("x");
    Expect("ConvGradNetworks/BackwardProgram", backward);
    v1::UpdateParametersRequest update;
    update.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
    auto* group = update.add_groups();
    group->set_learning_rate(0.5);
    group->add_parameters("w");
    Expect("ConvGradNetworks/UpdateParameters", update);
    v1::LoadProgramRequest load;
    load.set_name("other");
    *load.mutable_program() = EncodeProgram(*ParseProgram(kNet));
    Expect("ConvGradNetworks/LoadProgram", load);
    v1::DropProgramsRequest drop;
    drop.add_programs("other");
    Expect("ConvGradNetworks/DropPrograms", drop);
  }
  // The test made ten steps, each once, with the same gradient of w.
  const std::vector<float> w = client_.Get("w");
  // The value is the sum over the batch of dy * x, times 0.5, ten times.
  const std::vector<float> x = {1, 2, 3, 4, 5, 6}, dy = {1, 2, 3, 4};
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 3; ++i) {
      const float gradient = dy[o] * x[i] + dy[2 + o] * x[3 + i];
      EXPECT_EQ(w[o * 3 + i],
                static_cast<float>(o * 3 + i + 1) - 10 * 0.5F * gradient);
    }
  }
}

TEST_F(RepeatedReplies, OfStreams) {
  const std::string bytes = RandomBytes(kLarge, 1);
  for (int frames = 0; frames <= 3; ++frames) {
    ChangeMetadata change = client_.session().Next();
    const auto messages = PutOfLarge(bytes);
    {
      PutStream lost(server_.channel(), change);
      for (int i = 0; i <= frames; ++i) lost.Write(messages[i]);
      if (frames == 3) lost.HalfClose();
      lost.Cancel();
      lost.Await();
    }
    auto first = SendAll(server_.channel(), change, messages);
    if (GoesOn(first.status, &change)) {
      first = SendAll(server_.channel(), change, messages);
    }
    const auto second = SendAll(server_.channel(), change, messages);
    ExpectAlike(first, second, change.sequence);
  }
}

}  // namespace
}  // namespace convgrad
