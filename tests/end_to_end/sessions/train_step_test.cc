// Tests RunProgram with an update: a whole training step in one call.
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

constexpr char kRegression[] = R"(
input x
input target
parameter w [2, 3]
parameter m [2] fixed
parameter v [2] fixed
a = linear(x, w)
b = batch_norm(a, none, none, m, v, momentum=0.5, training=true)
loss = mse(b, target)
output loss
)";

// Counts its runs in a batch_norm and in a dropout.
constexpr char kCounting[] = R"(
input x
input target
parameter w [2, 3]
parameter m [2] fixed
parameter v [2] fixed
parameter n [] i64 fixed
a = linear(x, w)
b = batch_norm(a, none, none, m, v, n, momentum=none, training=true)
c = dropout(b, training=true)
loss = mse(c, target)
output loss
)";

v1::UpdateParametersRequest MomentumSgd() {
  v1::UpdateParametersRequest request;
  request.set_algorithm(v1::UpdateParametersRequest::ALGORITHM_SGD);
  auto* group = request.add_groups();
  group->set_learning_rate(0.5);
  group->set_momentum(0.9);
  group->add_parameters("w");
  return request;
}

v1::RunProgramRequest StepOf(const Floats& x, const Floats& target) {
  v1::RunProgramRequest request;
  request.set_program("net");
  AddValue("x", {3, 3}, x, request.mutable_inputs(), &request);
  AddValue("target", {3, 2}, target, request.mutable_inputs(), &request);
  request.mutable_backward();
  return request;
}

v1::RunProgramRequest WithUpdate(v1::RunProgramRequest request) {
  *request.mutable_update() = MomentumSgd();
  return request;
}

const Floats kX = {1, 2, 3, 3, 1, 0, 5, 0, 1};
const Floats kTarget = {1, 0, 0, 1, 1, 1};
const Floats kWeight = {1, -2, 3, 4, 5, -6};

// Runs with each backend that computes networks, alone on a server.
class TrainStepTest : public ::testing::TestWithParam<const char*> {
 protected:
  TrainStepTest() : server_(ConfigOf(GetParam())), client_(server_.channel()) {
    Fill(client_);
  }

  static Config ConfigOf(const std::string& backend) {
    Config config = TestConfig();
    config.backends = backend;
    return config;
  }

  static void Fill(NetworkClient& client) {
    client.Put("w", {2, 3}, kWeight);
    client.Put("m", {2}, {0, 0});
    client.Put("v", {2}, {1, 1});
    const auto loaded = client.Load("net", kRegression);
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
  }

  TestServer server_;
  NetworkClient client_;
};

INSTANTIATE_TEST_SUITE_P(Backends, TrainStepTest,
                         ::testing::Values("reference", "onednn"));

TEST_P(TrainStepTest, LeavesTheBitsOfTheTwoCalls) {
  NetworkClient apart(server_.channel());
  Fill(apart);
  for (int i = 0; i < 3; ++i) {
    const auto together = client_.Run(WithUpdate(StepOf(kX, kTarget)));
    ASSERT_TRUE(together.status.ok()) << together.status.error_message();
    const auto run = apart.Run(StepOf(kX, kTarget));
    ASSERT_TRUE(run.status.ok()) << run.status.error_message();
    ASSERT_TRUE(apart.Update(MomentumSgd()).status.ok());
    EXPECT_EQ(together.response.payloads(0), run.response.payloads(0));
    for (const char* name : {"w", "m", "v", "w#momentum_buffer"}) {
      EXPECT_EQ(client_.Get(name), apart.Get(name)) << name;
    }
  }
  EXPECT_NE(client_.Get("w"), kWeight);
  EXPECT_EQ(client_.session().Get("w#gradient").status.error_code(),
            grpc::NOT_FOUND);
}

TEST_P(TrainStepTest, CountsAMissIfOneOfTheTwoPlansIsMade) {
  Config config = ConfigOf(GetParam());
  config.metrics_listen = "127.0.0.1:0";
  TestServer server(config);
  NetworkClient client(server.channel());
  Fill(client);
  // The first update has no momentum yet, so the second one has another plan.
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Run(WithUpdate(StepOf(kX, kTarget))).status.ok());
  }
  server.AwaitMetric("convgrad_plan_cache_misses_total 2");
  server.AwaitMetric("convgrad_plan_cache_hits_total 1");
  // Another batch has the same update.
  v1::RunProgramRequest larger;
  larger.set_program("net");
  AddValue("x", {6, 3}, Floats(18, 1), larger.mutable_inputs(), &larger);
  AddValue("target", {6, 2}, Floats(12, 1), larger.mutable_inputs(), &larger);
  larger.mutable_backward();
  ASSERT_TRUE(client.Run(WithUpdate(larger)).status.ok());
  server.AwaitMetric("convgrad_plan_cache_misses_total 3");
}

TEST_P(TrainStepTest, StepsByTheGradientsThatWereThereToo) {
  const Floats before = {1, 1, 1, 1, 1, 1};
  client_.Put("w#gradient", {2, 3}, before);
  NetworkClient alone(server_.channel());
  Fill(alone);
  v1::RunProgramRequest request = WithUpdate(StepOf(kX, kTarget));
  request.mutable_update()->set_keep_gradients(true);
  ASSERT_TRUE(client_.Run(request).status.ok());
  ASSERT_TRUE(alone.Run(request).status.ok());
  const Floats sum = client_.Get("w#gradient");
  const Floats own = alone.Get("w#gradient");
  const Floats weight = client_.Get("w");
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_EQ(sum[i], own[i] + before[i]);
    EXPECT_FLOAT_EQ(weight[i], kWeight[i] - 0.5f * sum[i]);
  }
}

TEST_P(TrainStepTest, AveragesAGradientThatItDrops) {
  v1::RunProgramRequest request = WithUpdate(StepOf(kX, kTarget));
  request.mutable_update()->set_ema_decay(0.5);
  request.mutable_update()->add_averaged("w#gradient");
  ASSERT_TRUE(client_.Run(request).status.ok());
  NetworkClient apart(server_.channel());
  Fill(apart);
  ASSERT_TRUE(apart.Run(StepOf(kX, kTarget)).status.ok());
  EXPECT_EQ(client_.Get("w#gradient#ema"), apart.Get("w#gradient"));
}

TEST_P(TrainStepTest, ASkippedStepKeepsTheStatisticsOfItsForward) {
  Floats x = kX;
  x[0] = std::numeric_limits<float>::infinity();
  v1::RunProgramRequest request = WithUpdate(StepOf(x, kTarget));
  request.mutable_update()->set_skip_nonfinite(true);
  const auto reply = client_.Run(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_TRUE(reply.response.update().skipped());
  EXPECT_EQ(client_.Get("w"), kWeight);
  EXPECT_NE(client_.Get("m"), (Floats{0, 0}));
  for (const char* name : {"w#gradient", "w#momentum_buffer"}) {
    EXPECT_EQ(client_.session().Get(name).status.error_code(), grpc::NOT_FOUND);
  }
}

TEST_P(TrainStepTest, CountsEndAtTheLargestNumber) {
  const auto put = [&](const std::string& name, std::vector<int64_t> dims,
                       const std::vector<int64_t>& counts) {
    const std::string bytes(reinterpret_cast<const char*>(counts.data()),
                            counts.size() * sizeof(int64_t));
    const auto tensor = TensorOf(v1::LAYOUT_NCX, dims, v1::DATA_TYPE_I64);
    ASSERT_TRUE(client_.session().Put(name, tensor, bytes).status.ok());
  };
  const auto get = [&](const std::string& name) {
    const std::string bytes = client_.session().Get(name).response.payloads(0);
    int64_t count;
    std::memcpy(&count, bytes.data() + bytes.size() - sizeof(count),
                sizeof(count));
    return count;
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  put("n", {}, {kMost});
  put("#randomness", {2}, {1, kMost});
  put("w#step", {}, {kMost});
  client_.Put("w#exp_avg", {2, 3}, Floats(6));
  client_.Put("w#exp_avg_sq", {2, 3}, Floats(6));
  ASSERT_TRUE(client_.Load("counting", kCounting).status.ok());
  v1::RunProgramRequest request = WithUpdate(StepOf(kX, kTarget));
  request.set_program("counting");
  request.mutable_update()->set_algorithm(
      v1::UpdateParametersRequest::ALGORITHM_ADAM);
  request.mutable_update()->mutable_groups(0)->clear_momentum();
  const auto reply = client_.Run(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  for (const char* name : {"n", "#randomness", "w#step"}) {
    EXPECT_EQ(get(name), kMost) << name;
  }
}

TEST_P(TrainStepTest, ARepeatGetsTheOneReply) {
  const auto request = WithUpdate(StepOf(kX, kTarget));
  const ChangeMetadata change = client_.session().Next();
  v1::RunProgramResponse first;
  for (int i = 0; i < 3; ++i) {
    const auto reply = SessionClient::Call<NetworkClient::Stub>(
        &client_.stub(), &NetworkClient::Stub::RunProgram, request, change);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    if (i == 0) first = reply.response;
    EXPECT_EQ(reply.response.payloads(0), first.payloads(0));
    // Equal times show that the reply is the same one, because no two runs take
    // exactly the same time.
    EXPECT_EQ(reply.response.report().compute_seconds(),
              first.report().compute_seconds());
  }
  client_.session().Committed();
  NetworkClient once(server_.channel());
  Fill(once);
  ASSERT_TRUE(once.Run(request).status.ok());
  EXPECT_EQ(client_.Get("w"), once.Get("w"));
}

TEST_P(TrainStepTest, OneThatIsRefusedChangesNothing) {
  const auto expect = [&](const v1::RunProgramRequest& request,
                          grpc::StatusCode code, const std::string& field) {
    const auto reply = client_.Run(request);
    EXPECT_EQ(reply.status.error_code(), code) << reply.status.error_message();
    EXPECT_NE(reply.status.error_message().find(field), std::string::npos)
        << reply.status.error_message();
    EXPECT_EQ(client_.Get("w"), kWeight);
    EXPECT_EQ(client_.Get("m"), (Floats{0, 0}));
  };
  v1::RunProgramRequest request = WithUpdate(StepOf(kX, kTarget));
  request.mutable_update()->mutable_groups(0)->set_learning_rate(-1);
  expect(request, grpc::INVALID_ARGUMENT, "update.groups[0].learning_rate");
  request = WithUpdate(StepOf(kX, kTarget));
  request.mutable_update()->mutable_groups(0)->add_parameters("nobody");
  expect(request, grpc::NOT_FOUND, "update.groups[0].parameters");
  request = WithUpdate(StepOf(kX, kTarget));
  request.mutable_backward()->set_leave_parameters(true);
  expect(request, grpc::INVALID_ARGUMENT, "backward");
  request.clear_backward();
  expect(request, grpc::INVALID_ARGUMENT, "backward");
}

}  // namespace
}  // namespace convgrad
