#include "server/scheduling/work_rates.h"

#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class WorkRatesTest : public testing::Test {
 protected:
  WorkRates::Work Predict(
      absl::string_view problem = "conv2d_n16_c64_o64_i56_k3_p1") {
    return rates_.Predict(backend_,
                          WholeOperation(*Parse(problem), Direction::kForward,
                                         DataType::kF32, Layout::kNCX),
                          1);
  }

  absl::Time now_ = absl::UnixEpoch();
  WorkRates rates_{[this] { return now_; }};
  PuppetStrings strings_;
  PuppetBackend backend_{&strings_};
};

TEST_F(WorkRatesTest, KnowNothingAtFirst) {
  EXPECT_EQ(Predict().predicted, absl::ZeroDuration());
}

TEST_F(WorkRatesTest, PredictLikeWorkByItsSize) {
  const WorkRates::Work work = Predict();
  rates_.Learn(work, absl::Seconds(1));
  rates_.Learn(work, absl::Seconds(1));
  EXPECT_EQ(Predict().predicted, absl::Seconds(1));
  const absl::Duration half = Predict("conv2d_n8_c64_o64_i56_k3_p1").predicted;
  EXPECT_NEAR(absl::ToDoubleSeconds(half), 0.5, 0.01);
  // Small work is of another kind, so it doesn't predict large work.
  EXPECT_EQ(Predict("conv2d_n1_c1_o1_i1_k1").predicted, absl::ZeroDuration());
}

TEST_F(WorkRatesTest, FollowWhatIsMeasured) {
  const WorkRates::Work work = Predict();
  rates_.Learn(work, absl::Seconds(1));
  rates_.Learn(work, absl::Seconds(1));
  rates_.Learn(work, absl::Seconds(2));
  EXPECT_NEAR(absl::ToDoubleSeconds(Predict().predicted), 1.25, 1e-6);
  // One long run changes the rate only a little.
  rates_.Learn(work, absl::Seconds(1000));
  EXPECT_LT(Predict().predicted, absl::Seconds(2));
  for (int i = 0; i < 50; ++i) rates_.Learn(work, absl::Seconds(3));
  EXPECT_NEAR(absl::ToDoubleSeconds(Predict().predicted), 3, 1e-3);
}

// A first job that was held up doesn't refuse those that follow.
TEST_F(WorkRatesTest, CountTheFasterOfTheFirstTwo) {
  const WorkRates::Work work = Predict();
  rates_.Learn(work, absl::Seconds(100));
  EXPECT_EQ(Predict().predicted, absl::ZeroDuration());
  rates_.Learn(work, absl::Seconds(1));
  EXPECT_EQ(Predict().predicted, absl::Seconds(1));
}

TEST_F(WorkRatesTest, KnowJobsThatTakeLong) {
  const WorkRates::Work work = Predict();
  for (int i = 0; i < 3; ++i) {
    now_ += absl::Seconds(110);
    rates_.Learn(work, absl::Seconds(100));
  }
  now_ += absl::Seconds(110);
  EXPECT_EQ(Predict().predicted, absl::Seconds(100));
}

TEST_F(WorkRatesTest, ForgetWhatIsOld) {
  const WorkRates::Work work = Predict();
  rates_.Learn(work, absl::Seconds(4));
  rates_.Learn(work, absl::Seconds(4));
  now_ += absl::Seconds(9);
  EXPECT_EQ(Predict().predicted, absl::Seconds(4));
  now_ += absl::Seconds(2);
  EXPECT_EQ(Predict().predicted, absl::ZeroDuration());
  rates_.Learn(work, absl::Seconds(1));
  rates_.Learn(work, absl::Seconds(1));
  EXPECT_EQ(Predict().predicted, absl::Seconds(1));
}

}  // namespace
}  // namespace convgrad
