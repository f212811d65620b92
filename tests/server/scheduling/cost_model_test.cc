// What auto expects, what it learns, and what it chooses by that.
#include "server/scheduling/cost_model.h"

#include "gtest/gtest.h"
#include "server/scheduling/routing.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

// Slow at arithmetic, but nothing crosses to it.
constexpr Rates kCores = {{1e6, 2e6, 1e6}, 0, absl::ZeroDuration()};
constexpr Rates kDevice = {{1e9, 1e9, 1e9}, 1e6, absl::Microseconds(100)};

constexpr CostModel::Query kMeasured = {.deterministic = false};

class CostModelTest : public testing::Test {
 protected:
  CostModelTest() {
    PuppetTraits traits;
    traits.rates = kDevice;
    traits.devices = 1;
    backends_.push_back(RegisteredPuppet("cuda", &device_strings_, traits));
    traits.rates = kCores;
    traits.devices = 0;
    backends_.push_back(RegisteredPuppet("onednn", &strings_, traits));
    router_.emplace(backends_, Router::Limits{1 << 30, 0});
  }

  const Backend& device() { return **backends_[0].backend; }
  const Backend& cores() { return **backends_[1].backend; }

  // A matrix product: batch * channels * out multiply-adds on that many floats
  // of each pair.
  static ConvOperation MakeOperation(int64_t batch, int64_t channels,
                                     int64_t out) {
    ConvOperation operation = TinyOperation(channels);
    ConvProblem& problem = operation.problem;
    problem.batch = batch;
    problem.out_channels = out;
    operation.operand(Operand::kInput)->dims = InputDims(problem);
    operation.operand(Operand::kWeight)->dims = WeightDims(problem);
    operation.results[0].descriptor.dims = OutputDims(problem);
    return operation;
  }

  Router::Choice Route(const ConvOperation& operation,
                       const CostModel::Query& query = {}) {
    const auto choice = router_->Route(operation, {"", query});
    EXPECT_TRUE(choice.ok()) << choice.status();
    return *choice;
  }

  PuppetStrings strings_, device_strings_;
  std::vector<RegisteredBackend> backends_;
  std::optional<Router> router_;
};

TEST_F(CostModelTest, PredictsWireTransferAndComputeByTheDescriptor) {
  const ConvOperation operation = MakeOperation(1, 100, 50);
  const Prediction prediction =
      router_->cost_model()->Predict(device(), operation, {true, 1500});
  EXPECT_EQ(prediction.backend, "cuda");
  // 1.5 GB/s; 100 + 5000 + 50 floats; 10,000 flops.
  EXPECT_EQ(prediction.wire, absl::Microseconds(1));
  EXPECT_EQ(prediction.transfer, absl::Microseconds(20600));
  EXPECT_EQ(prediction.compute, absl::Microseconds(110));
  EXPECT_EQ(prediction.total(), absl::Microseconds(1 + 20600 + 110));
}

TEST_F(CostModelTest, AutoTakesTheFasterAndSaysWhatItExpected) {
  const Router::Choice small = Route(MakeOperation(1, 1, 1));
  EXPECT_EQ(small.backend->name(), "onednn");
  ASSERT_EQ(small.predictions.size(), 2u);
  EXPECT_EQ(small.predictions[0].backend, "cuda");
  EXPECT_EQ(small.predictions[1].backend, "onednn");
  EXPECT_GT(small.predictions[0].total(), small.predictions[1].total());

  const Router::Choice large = Route(MakeOperation(100, 100, 50));
  EXPECT_EQ(large.backend->name(), "cuda");
  EXPECT_LT(large.predictions[0].total(), large.predictions[1].total());
}

TEST_F(CostModelTest, WhatWasMeasuredCountsForWhoAllowsIt) {
  const ConvOperation operation = MakeOperation(1, 10, 10);
  ASSERT_EQ(Route(operation, kMeasured).backend->name(), "onednn");
  // The cores turn out to be a thousand times slower, the wire twice as fast.
  for (int i = 0; i < 300; ++i) {
    RunTimes times;
    times.compute = absl::Milliseconds(200);
    router_->cost_model()->OnRun(cores(), operation, times);
    router_->cost_model()->OnReceived(int64_t{3} << 30, absl::Seconds(1));
  }
  EXPECT_EQ(Route(operation, kMeasured).backend->name(), "cuda");
  EXPECT_EQ(Route(operation).backend->name(), "onednn");
  const Prediction measured = router_->cost_model()->Predict(
      cores(), operation, {false, int64_t{3} << 30});
  EXPECT_NEAR(absl::ToDoubleMilliseconds(measured.compute), 200, 1);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(measured.wire), 1000, 10);
  // Other dtypes have speeds of their own.
  ConvOperation other = operation;
  for (auto& operand : other.operands) {
    if (operand) operand->dtype = DataType::kBF16;
  }
  other.results[0].descriptor.dtype = DataType::kBF16;
  EXPECT_EQ(Route(other, kMeasured).backend->name(), "onednn");
}

TEST_F(CostModelTest, LearnsHowFastBytesCross) {
  RunTimes times;
  times.compute = absl::Microseconds(1);
  times.transfer = absl::Seconds(1);
  times.transferred_bytes = 1'000'000'000;
  router_->cost_model()->OnRun(device(), MakeOperation(1, 1, 1), times);
  const Prediction prediction = router_->cost_model()->Predict(
      device(), MakeOperation(1, 1, 1), kMeasured);
  EXPECT_LT(prediction.transfer, absl::Microseconds(1));
}

TEST_F(CostModelTest, ALostDeviceIsPassedBy) {
  PuppetTraits fast;
  fast.rates = {{1e12, 1e12, 1e12}, 0, absl::ZeroDuration()};
  fast.devices = 2;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("cuda", &device_strings_, fast));
  backends.push_back(RegisteredPuppet("onednn", &strings_));
  const Router router(backends, {1 << 30, 0});
  const auto choose = [&](absl::string_view name) {
    return router.Route(TinyOperation(), {name, {}});
  };
  device_strings_.LoseDevice(0);
  EXPECT_EQ(choose("")->backend->name(), "cuda");
  device_strings_.LoseDevice(1);
  EXPECT_EQ(choose("")->backend->name(), "onednn");
  EXPECT_EQ(choose("cuda").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(router.CanServe());
  backends.pop_back();
  const Router alone(backends, {1 << 30, 0});
  EXPECT_FALSE(alone.CanServe());
  EXPECT_EQ(alone.Route(TinyOperation(), {}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(CostModelTest, WithoutAChoiceThereIsNothingToPredict) {
  backends_.erase(backends_.begin());
  Router router(backends_, {1 << 30, 0});
  EXPECT_EQ(router.cost_model(), nullptr);
  EXPECT_TRUE(router.Route(TinyOperation(), {})->predictions.empty());
}

}  // namespace
}  // namespace convgrad
