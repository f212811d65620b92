// Tests the predictions of "auto", and its choices.
#include "server/scheduling/cost_model.h"

#include "gtest/gtest.h"
#include "server/scheduling/routing.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

// The rates of a backend that computes slowly but transfers nothing.
constexpr Rates kCores = {{1e6, 2e6, 1e6}, 0, absl::ZeroDuration()};
constexpr Rates kDevice = {{1e9, 1e9, 1e9}, 1e6, absl::Microseconds(100)};

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

  // Returns a matrix product: batch * channels * out multiply-adds on that many
  // floats of each pair.
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

  Router::Choice Route(const ConvOperation& operation) {
    const auto choice = router_->Route(operation, {});
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
      Predict(device(), operation, 1500, /*threads_per_worker=*/1);
  EXPECT_EQ(prediction.backend, "cuda");
  // The rate is 1.5 GB/s, for 100 + 5000 + 50 floats and 10,000 flops.
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

TEST_F(CostModelTest, ALostDeviceIsPassedBy) {
  PuppetTraits fast;
  fast.rates = {{1e12, 1e12, 1e12}, 0, absl::ZeroDuration()};
  fast.devices = 2;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("cuda", &device_strings_, fast));
  backends.push_back(RegisteredPuppet("onednn", &strings_));
  const Router router(backends, {1 << 30, 0});
  const auto choose = [&](absl::string_view name) {
    return router.Route(TinyOperation(), {name, 0});
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
  const Router router(backends_, {1 << 30, 0});
  EXPECT_TRUE(router.Route(TinyOperation(), {})->predictions.empty());
}

}  // namespace
}  // namespace convgrad
