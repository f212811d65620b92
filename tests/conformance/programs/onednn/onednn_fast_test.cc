// Runs that may compute convolutions by Winograd's algorithm: when they do, and
// that they compute directly what the algorithm can't.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

constexpr int64_t kImages = 2, kChannels = 32, kExtent = 16;

// Returns a program whose second convolution takes the fast way in all passes.
std::string Convolutions(const std::string& arguments = "padding=1") {
  return "input x\nparameter v [32, 3, 3, 3]\nparameter w [32, 32, 3, 3]\n"
         "a = conv(x, v, padding=1)\nb = conv(a, w, " +
         arguments + ")\nc = mul(b, other=0.5)\ny = mse(b, c)\noutput y\n";
}

std::shared_ptr<const ProgramOperation> Train(
    bool fast, DataType dtype = DataType::kF32, bool recompute = false,
    const std::string& text = Convolutions()) {
  ProgramRequest request;
  request.part = ProgramPart::kTrain;
  request.compute_dtype = dtype;
  request.fast = fast;
  request.recompute = recompute;
  request.fetched = {"b"};
  TensorDescriptor images;
  images.dims = {kImages, 3, kExtent, kExtent};
  request.inputs = {images};
  request.input_gradients = {true};
  return MakeProgramOperation(text, std::move(request));
}

using Operands = std::vector<std::vector<std::byte>>;

class Fast : public testing::Test {
 protected:
  GuardedRun Run(const ProgramOperation& operation, const Operands& operands,
                 int threads = 2) const {
    const auto plan = onednn_->MakePlan(operation, {.threads = threads});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return RunPlan(**plan, operation, operands, false);
  }
  // Returns the results of a fast run and of a direct one.
  std::pair<GuardedRun, GuardedRun> RunBoth(const Operands& operands) const {
    return {Run(*Train(true), operands), Run(*Train(false), operands)};
  }

  const std::unique_ptr<Backend> onednn_ = *MakeOnednnBackend();
};

TEST_F(Fast, HasOtherBitsWithinRounding) {
  const auto [fast, direct] = RunBoth(RandomOperands(*Train(true), 1));
  // The fetched value, and the gradients of x, v and w: so every pass differs.
  for (const size_t result : {0, 1, 2, 3}) {
    EXPECT_NE(fast.results[result], direct.results[result]) << result;
    const std::vector<float> found = fast.Floats(result);
    const std::vector<float> expected = direct.Floats(result);
    float largest = 0;
    for (const float value : expected) {
      largest = std::max(largest, std::fabs(value));
    }
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5F * largest) << result;
    }
  }
}

TEST_F(Fast, HasTheSameBitsForAnyTeamAndIfItRecomputes) {
  const Operands operands = RandomOperands(*Train(true), 1);
  const GuardedRun one = Run(*Train(true), operands, 1);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(Run(*Train(true), operands, threads).results, one.results);
  }
  EXPECT_EQ(Run(*Train(true, DataType::kF32, true), operands).results,
            one.results);
}

TEST_F(Fast, HasTheSameBitsInRoundsOfChannels) {
  // With fewer threads, a pass of so many channels has more rounds.
  std::string text = Convolutions();
  for (const char* const channels : {"[32, 3,", "[32, 32,"}) {
    text.replace(text.find(channels), 3, "[400");
  }
  text.replace(text.find("[400, 32"), 8, "[400, 400");
  const auto fast = Train(true, DataType::kF32, false, text);
  const Operands operands = RandomOperands(*fast, 1);
  const GuardedRun one = Run(*fast, operands, 1);
  EXPECT_EQ(Run(*fast, operands, 8).results, one.results);
  EXPECT_EQ(Run(*Train(true, DataType::kF32, true, text), operands, 2).results,
            one.results);
  const GuardedRun direct =
      Run(*Train(false, DataType::kF32, false, text), operands, 1);
  for (const size_t result : {0, 1, 2, 3}) {
    const std::vector<float> found = one.Floats(result);
    const std::vector<float> expected = direct.Floats(result);
    float largest = 0;
    for (const float value : expected) {
      largest = std::max(largest, std::fabs(value));
    }
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5F * largest) << result;
    }
  }
}

TEST_F(Fast, SharesNothingBetweenRunsOfOnePlan) {
  const auto operation = Train(true);
  const auto plan = *onednn_->MakePlan(*operation, {.threads = 1});
  const std::vector<Operands> operands = {RandomOperands(*operation, 1, 1),
                                          RandomOperands(*operation, 1, 2)};
  std::vector<GuardedRun> expected;
  for (const Operands& one : operands) {
    expected.push_back(RunPlan(*plan, *operation, one, false));
  }
  std::vector<std::thread> threads;
  std::atomic<int> other_results = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < 200; ++run) {
        if (RunPlan(*plan, *operation, operands[i], false).results !=
            expected[i].results) {
          ++other_results;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(other_results, 0);
}

TEST_F(Fast, ComputesDirectlyWhatIsNotFiniteOrTooLarge) {
  for (const float value : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::quiet_NaN(), 1e20F}) {
    // An element of x makes some of the second convolution's inputs large. An
    // element of w is its own weight.
    for (const size_t operand : {size_t{0}, size_t{2}}) {
      Operands operands = RandomOperands(*Train(true), 1);
      std::memcpy(operands[operand].data() + 400, &value, sizeof(value));
      const auto [fast, direct] = RunBoth(operands);
      EXPECT_EQ(fast.results[0], direct.results[0]);
      if (operand == 2) {
        EXPECT_EQ(fast.results[1], direct.results[1]);
      } else {
        EXPECT_EQ(fast.results[3], direct.results[3]);
      }
    }
  }
}

// Returns a program whose second convolution is 3-D, with a kernel of this
// depth on images of these extents.
std::string Volumes(int64_t kernel_depth, const std::string& extents,
                    const std::string& padding) {
  return absl::StrCat(
      "input x\nparameter v [32, 3, 3, 3]\nparameter w [32, 32, ", kernel_depth,
      ", 3, 3]\na = conv(x, v, padding=1)\n", "r = reshape(a, shape=[2, 32, ",
      extents, "])\nb = conv(r, w, padding=", padding,
      ")\nc = mul(b, other=0.5)\ny = mse(b, c)\noutput y\n");
}

TEST_F(Fast, ComputesVolumesMostOfWhosePlanesAreInTheImage) {
  const auto is_fast = [&](const std::string& text) {
    const auto fast = Train(true, DataType::kF32, false, text);
    const Operands operands = RandomOperands(*fast, 1);
    const auto direct = Train(false, DataType::kF32, false, text);
    return Run(*fast, operands).results != Run(*direct, operands).results;
  };
  EXPECT_TRUE(is_fast(Volumes(3, "4, 8, 8", "1")));
  EXPECT_TRUE(is_fast(Volumes(1, "4, 8, 8", "[0, 1, 1]")));
  EXPECT_FALSE(is_fast(Volumes(3, "1, 16, 16", "1")));
  EXPECT_FALSE(is_fast(Volumes(9, "16, 4, 4", "[4, 1, 1]")));
}

TEST_F(Fast, LeavesOtherConvolutionsAsTheyAre) {
  for (const char* const arguments :
       {"stride=2, padding=1", "dilation=[1, 2]", "groups=2, padding=1"}) {
    std::string text = Convolutions(arguments);
    if (std::string(arguments).starts_with("groups")) {
      text.replace(text.find("[32, 32, 3"), 7, "[32, 16");
    }
    const auto fast = Train(true, DataType::kF32, false, text);
    const Operands operands = RandomOperands(*fast, 1);
    EXPECT_EQ(
        Run(*fast, operands).results,
        Run(*Train(false, DataType::kF32, false, text), operands).results);
  }
  const Operands operands = RandomOperands(*Train(true, DataType::kBF16), 1);
  EXPECT_EQ(Run(*Train(true, DataType::kBF16), operands).results,
            Run(*Train(false, DataType::kBF16), operands).results);
}

}  // namespace
}  // namespace convgrad
