// Tests programs in sessions over a real socket: run, backward, update; each
// change takes effect exactly once.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

constexpr char kLinear[] = R"(
input x
parameter w [2, 3]
parameter b [2]
y = linear(x, w, b)
output y
)";

v1::RunProgramRequest RunOf(const Floats& x, const std::string& tape = "") {
  v1::RunProgramRequest request;
  request.set_program("net");
  request.set_tape(tape);
  AddValue("x", {static_cast<int64_t>(x.size()) / 3, 3}, x,
           request.mutable_inputs(), &request);
  return request;
}

v1::BackwardProgramRequest BackwardOf(const std::string& tape,
                                      const Floats& grad_y) {
  v1::BackwardProgramRequest request;
  request.set_tape(tape);
  AddValue("y", {static_cast<int64_t>(grad_y.size()) / 2, 2}, grad_y,
           request.mutable_output_gradients(), &request);
  return request;
}

v1::UpdateParametersRequest SgdOf(double learning_rate, double momentum = 0) {
  v1::UpdateParametersRequest request;
  request.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
  auto* group = request.add_groups();
  group->set_learning_rate(learning_rate);
  group->set_momentum(momentum);
  group->add_parameters("w");
  group->add_parameters("b");
  return request;
}

// Runs with each backend that computes networks, alone on a server.
class NetworkTest : public ::testing::TestWithParam<const char*> {
 protected:
  NetworkTest() : server_(ConfigOf(GetParam())), client_(server_.channel()) {
    client_.Put("w", {2, 3}, {1, 2, 3, 4, 5, 6});
    client_.Put("b", {2}, {10, 20});
    const auto loaded = client_.Load("net", kLinear);
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
  }

  static Config ConfigOf(const std::string& backend) {
    Config config = TestConfig();
    config.backends = backend;
    return config;
  }

  // Keeps `gradient` as the gradient of w.
  void PutGradient(const Floats& gradient) {
    client_.Put("w#gradient", {2, 3}, gradient);
  }

  TestServer server_;
  NetworkClient client_;
};

INSTANTIATE_TEST_SUITE_P(Backends, NetworkTest,
                         ::testing::Values("reference", "onednn"));

TEST_P(NetworkTest, RunsForwardAsARead) {
  const auto reply = client_.Infer(RunOf({1, 0, 0, 0, 1, 1}));
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  ASSERT_EQ(reply.response.values_size(), 1);
  EXPECT_EQ(reply.response.values(0).name(), "y");
  EXPECT_EQ(FloatsOf(reply.response.payloads(0)), (Floats{11, 24, 15, 31}));
  EXPECT_EQ(reply.number, 3);
}

TEST_P(NetworkTest, AddsGradientsOfEachBackwardAndStepsOnce) {
  for (const char* tape : {"first", "second"}) {
    const auto run = client_.Run(RunOf({1, 2, 3}, tape));
    ASSERT_TRUE(run.status.ok()) << run.status.error_message();
    const v1::RunReport& report = run.response.report();
    EXPECT_GT(report.tape_bytes(), 0);
    // A planning thread has made the first run's plan.
    EXPECT_EQ(report.plan_cache_hit(), std::string(tape) == "second");
    EXPECT_GT(report.plan_seconds(), 0);
    auto request = BackwardOf(tape, {1, -1});
    request.add_input_gradients("x");
    const auto backward = client_.Backward(request);
    ASSERT_TRUE(backward.status.ok()) << backward.status.error_message();
    EXPECT_EQ(backward.response.values(0).name(), "x#gradient");
    EXPECT_EQ(FloatsOf(backward.response.payloads(0)), (Floats{-3, -3, -3}));
  }
  EXPECT_EQ(client_.Get("w#gradient"), (Floats{2, 4, 6, -2, -4, -6}));
  EXPECT_EQ(client_.Get("b#gradient"), (Floats{2, -2}));
  const auto update = client_.Update(SgdOf(0.5));
  ASSERT_TRUE(update.status.ok()) << update.status.error_message();
  EXPECT_EQ(client_.Get("w"), (Floats{0, 0, 0, 5, 7, 9}));
  EXPECT_EQ(client_.Get("b"), (Floats{9, 21}));
  // The first step has dropped the gradients, so a second step changes nothing.
  ASSERT_TRUE(client_.Update(SgdOf(0.5)).status.ok());
  EXPECT_EQ(client_.Get("w"), (Floats{0, 0, 0, 5, 7, 9}));
}

TEST_P(NetworkTest, RepeatOfABackwardAddsNothing) {
  ASSERT_TRUE(client_.Run(RunOf({1, 2, 3}, "tape")).status.ok());
  const auto request = BackwardOf("tape", {1, 1});
  const ChangeMetadata change = client_.session().Next();
  for (int i = 0; i < 3; ++i) {
    const auto reply = SessionClient::Call<NetworkClient::Stub>(
        &client_.stub(), &NetworkClient::Stub::BackwardProgram, request,
        change);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  }
  client_.session().Committed();
  EXPECT_EQ(client_.Get("w#gradient"), (Floats{1, 2, 3, 1, 2, 3}));
}

TEST_P(NetworkTest, TapeIsUsedUpUnlessRetained) {
  ASSERT_TRUE(client_.Run(RunOf({1, 2, 3}, "tape")).status.ok());
  auto request = BackwardOf("tape", {1, 1});
  request.set_retain(true);
  EXPECT_TRUE(client_.Backward(request).status.ok());
  request.set_retain(false);
  EXPECT_TRUE(client_.Backward(request).status.ok());
  const auto again = client_.Backward(request);
  EXPECT_EQ(again.status.error_code(), grpc::NOT_FOUND);
  EXPECT_NE(again.status.error_message().find("tape"), std::string::npos);
}

TEST_P(NetworkTest, RefusesATapeOfOlderParameters) {
  ASSERT_TRUE(client_.Run(RunOf({1, 2, 3}, "tape")).status.ok());
  client_.Put("w", {2, 3}, {0, 0, 0, 0, 0, 0});
  const auto reply = client_.Backward(BackwardOf("tape", {1, 1}));
  EXPECT_EQ(reply.status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_NE(reply.status.error_message().find("parameters.w"),
            std::string::npos);
}

TEST_P(NetworkTest, LeavesParameterGradientsAloneIfAskedTo) {
  ASSERT_TRUE(client_.Run(RunOf({1, 2, 3}, "tape")).status.ok());
  auto request = BackwardOf("tape", {1, 1});
  request.set_leave_parameters(true);
  request.add_input_gradients("x");
  EXPECT_TRUE(client_.Backward(request).status.ok());
  EXPECT_EQ(client_.session().Get("w#gradient").status.error_code(),
            grpc::NOT_FOUND);
}

TEST_P(NetworkTest, RefusesWhatDoesNotFit) {
  const auto expect = [&](const v1::RunProgramRequest& request,
                          grpc::StatusCode code, const std::string& text) {
    const auto reply = client_.Infer(request);
    EXPECT_EQ(reply.status.error_code(), code);
    EXPECT_NE(reply.status.error_message().find(text), std::string::npos)
        << reply.status.error_message();
  };
  v1::RunProgramRequest request = RunOf({1, 2, 3});
  request.set_program("other");
  expect(request, grpc::NOT_FOUND, "program: found 'other'");
  expect(RunOf({1, 2, 3}, "tape"), grpc::INVALID_ARGUMENT,
         "a run that keeps a tape");
  request = RunOf({1, 2, 3});
  request.mutable_inputs(0)->set_name("z");
  expect(request, grpc::INVALID_ARGUMENT, "'x'");
  request = RunOf({1, 2, 3});
  request.add_fetched("nothing");
  expect(request, grpc::INVALID_ARGUMENT, "fetched");
  request = RunOf({1, 2, 3});
  request.mutable_inputs(0)->mutable_tensor()->set_dims(1, 4);
  expect(request, grpc::INVALID_ARGUMENT, "payloads[0]");
  client_.Put("b", {1, 2}, {10, 20});
  expect(RunOf({1, 2, 3}), grpc::INVALID_ARGUMENT, "parameters.b");
  ASSERT_TRUE(client_.session().Drop("b").status.ok());
  expect(RunOf({1, 2, 3}), grpc::NOT_FOUND, "parameters.b");
}

TEST_P(NetworkTest, KeepsAProgramUnderItsName) {
  EXPECT_TRUE(client_.Load("net", kLinear).status.ok());
  const auto other = client_.Load("net", "input x\ny = relu(x)\noutput y\n");
  EXPECT_EQ(other.status.error_code(), grpc::FAILED_PRECONDITION);
  v1::DropProgramsRequest drop;
  drop.add_programs("net");
  using Stub = NetworkClient::Stub;
  EXPECT_TRUE(client_.session()
                  .Change<Stub>(&client_.stub(), &Stub::DropPrograms, drop)
                  .status.ok());
  EXPECT_EQ(client_.Infer(RunOf({1, 2, 3})).status.error_code(),
            grpc::NOT_FOUND);
}

TEST_P(NetworkTest, ProgramsAndTapesCountInTheQuota) {
  v1::OpenSessionRequest open;
  open.set_quota_bytes(64 << 10);
  NetworkClient small(server_.channel(), open);
  int64_t loaded = 0;
  while (small.Load(absl::StrCat("net", loaded), kLinear).status.ok()) {
    ASSERT_LT(++loaded, 100);
  }
  EXPECT_GT(loaded, 0);
  v1::DropProgramsRequest drop;
  drop.add_programs("net0");
  using Stub = NetworkClient::Stub;
  EXPECT_TRUE(small.session()
                  .Change<Stub>(&small.stub(), &Stub::DropPrograms, drop)
                  .status.ok());
  EXPECT_TRUE(small.Load("again", kLinear).status.ok());
}

TEST_P(NetworkTest, SgdKeepsItsMomentum) {
  PutGradient({1, 1, 1, 1, 1, 1});
  ASSERT_TRUE(client_.Update(SgdOf(1, 0.5)).status.ok());
  EXPECT_EQ(client_.Get("w"), (Floats{0, 1, 2, 3, 4, 5}));
  PutGradient({1, 1, 1, 1, 1, 1});
  ASSERT_TRUE(client_.Update(SgdOf(1, 0.5)).status.ok());
  EXPECT_EQ(client_.Get("w#momentum_buffer"), Floats(6, 1.5));
  EXPECT_EQ(client_.Get("w"), (Floats{-1.5, -0.5, 0.5, 1.5, 2.5, 3.5}));
}

// The formulas are those of torch.optim.Adam's documentation, in f64.
TEST_P(NetworkTest, AdamStepsAsItsFormulaSays) {
  v1::UpdateParametersRequest request = SgdOf(0.1);
  request.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_ADAM);
  double value = 1;
  double mean = 0;
  double square = 0;
  for (int step = 1; step <= 3; ++step) {
    const double gradient = 0.5 * step;
    PutGradient(Floats(6, static_cast<float>(gradient)));
    const auto reply = client_.Update(request);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.999 * square + 0.001 * gradient * gradient;
    const double mean_hat = mean / (1 - std::pow(0.9, step));
    const double square_hat = square / (1 - std::pow(0.999, step));
    value -= 0.1 * mean_hat / (std::sqrt(square_hat) + 1e-8);
  }
  EXPECT_NEAR(client_.Get("w")[0], value, 1e-6);
  EXPECT_NEAR(client_.Get("w#exp_avg")[0], mean, 1e-7);
}

TEST_P(NetworkTest, ClipsByTheNormOverAllParameters) {
  PutGradient({3, 0, 0, 0, 0, 0});
  client_.Put("b#gradient", {2}, {0, 4});
  v1::UpdateParametersRequest request = SgdOf(1);
  request.set_clip_norm(2.5);
  const auto reply = client_.Update(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_FLOAT_EQ(reply.response.gradient_norm(), 5);
  EXPECT_NEAR(client_.Get("w")[0], 1 - 1.5, 1e-6);
  EXPECT_NEAR(client_.Get("b")[1], 20 - 2, 1e-5);
}

TEST_P(NetworkTest, SkipsAStepWhoseGradientIsNotFinite) {
  PutGradient({std::numeric_limits<float>::infinity(), 0, 0, 0, 0, 0});
  v1::UpdateParametersRequest request = SgdOf(1, 0.9);
  request.set_skip_nonfinite(true);
  const auto reply = client_.Update(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_TRUE(reply.response.skipped());
  EXPECT_EQ(client_.Get("w"), (Floats{1, 2, 3, 4, 5, 6}));
  for (const char* name : {"w#gradient", "w#momentum_buffer"}) {
    EXPECT_EQ(client_.session().Get(name).status.error_code(), grpc::NOT_FOUND);
  }
}

TEST_P(NetworkTest, StepsOnlyByWhatHasTheOrderOfItsParameter) {
  const auto put = [&](const std::string& name, v1::Layout layout) {
    const auto reply = client_.session().Put(
        name, TensorOf(layout, {2, 2, 1, 1}), BytesOf({0, 1, 2, 3}));
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  };
  v1::UpdateParametersRequest request = SgdOf(1, 0.5);
  request.mutable_groups(0)->clear_parameters();
  request.mutable_groups(0)->add_parameters("k");
  put("k", v1::LAYOUT_OIX);
  put("k#gradient", v1::LAYOUT_XIO);
  const auto refused = client_.Update(request);
  EXPECT_EQ(refused.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(refused.status.error_message(),
            "k#gradient: found f32:XIO[2,2,1,1], expected f32:OIX[2,2,1,1]");
  EXPECT_EQ(client_.Get("k"), (Floats{0, 1, 2, 3}));
  // OXI is the same order for a kernel of one element.
  put("k#gradient", v1::LAYOUT_OXI);
  ASSERT_TRUE(client_.Update(request).status.ok());
  EXPECT_EQ(client_.Get("k"), Floats(4, 0));
  put("k#gradient", v1::LAYOUT_NCX);
  put("k#momentum_buffer", v1::LAYOUT_XIO);
  EXPECT_EQ(client_.Update(request).status.error_message(),
            "k#momentum_buffer: found f32:XIO[2,2,1,1], "
            "expected f32:OIX[2,2,1,1]");
  client_.Put("k#momentum_buffer", {3}, {1, 2, 3});
  EXPECT_EQ(client_.Update(request).status.error_message(),
            "k#momentum_buffer: found f32:NCX[3], expected f32:OIX[2,2,1,1]");
}

TEST_P(NetworkTest, RefusesSettingsOutOfRange) {
  v1::UpdateParametersRequest request = SgdOf(-1);
  EXPECT_EQ(client_.Update(request).status.error_code(),
            grpc::INVALID_ARGUMENT);
  request = SgdOf(1);
  request.mutable_groups(0)->add_parameters("w");
  EXPECT_EQ(client_.Update(request).status.error_code(),
            grpc::INVALID_ARGUMENT);
  request = SgdOf(1);
  request.clear_algorithm();
  EXPECT_EQ(client_.Update(request).status.error_code(),
            grpc::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace convgrad
