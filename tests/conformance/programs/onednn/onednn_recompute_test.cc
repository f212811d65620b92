// Tests backwards that compute values of the forward again: they have the bits
// of backwards that keep the values, and need less memory.
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

// Returns eight blocks as in ResNet, all of one shape, whose batch_norms share
// their running statistics, and a dropout.
std::string DeepResidual() {
  std::string text = "input x\ninput target index\n";
  std::string steps = "r0 = conv(x, w0, padding=1)\n";
  absl::StrAppend(&text, "parameter w0 [16, 3, 3, 3]\n",
                  "parameter mean [16] fixed\nparameter var [16] fixed\n",
                  "parameter fc.weight [5, 16]\n");
  for (int i = 1; i <= 8; ++i) {
    absl::StrAppend(&text, "parameter w", i, " [16, 16, 3, 3]\n");
    absl::StrAppend(&text, "parameter g", i, " [16]\n");
    absl::StrAppend(&steps, "a", i, " = conv(r", i - 1, ", w", i,
                    ", padding=1)\n");
    absl::StrAppend(&steps, "b", i, " = batch_norm(a", i, ", g", i,
                    ", none, mean, var, training=true)\n");
    absl::StrAppend(&steps, "s", i, " = add(b", i, ", r", i - 1, ")\n");
    absl::StrAppend(&steps, "q", i, " = relu(s", i, ")\n");
    absl::StrAppend(&steps, "r", i, " = dropout(q", i,
                    ", p=0.1, training=true)\n");
  }
  absl::StrAppend(&steps, "g = adaptive_avg_pool(r8, output_size=1)\n",
                  "f = flatten(g)\nlogits = linear(f, fc.weight)\n",
                  "loss = cross_entropy(logits, target)\n",
                  "output loss\noutput logits\n");
  return text + steps;
}

ProgramRequest RequestFor(ProgramPart part, DataType dtype, bool recompute) {
  ProgramRequest request;
  request.part = part;
  request.compute_dtype = dtype;
  request.recompute = recompute;
  TensorDescriptor images, target;
  images.dims = {3, 3, 11, 11};
  target.dtype = DataType::kI64;
  target.dims = {3};
  request.inputs = {images, target};
  const bool has_backward =
      part == ProgramPart::kTrain || part == ProgramPart::kBackward;
  if (has_backward) request.input_gradients = {true, false};
  return request;
}

class Recompute : public testing::TestWithParam<DataType> {
 protected:
  static std::shared_ptr<const ProgramOperation> Operation(
      const ProgramRequest& request) {
    return MakeProgramOperation(DeepResidual(), request);
  }
  std::unique_ptr<Plan> PlanOf(const ProgramRequest& request) const {
    auto plan = onednn_->MakePlan(*Operation(request), {.threads = 2});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  GuardedRun Train(bool recompute) const {
    const auto train =
        Operation(RequestFor(ProgramPart::kTrain, GetParam(), recompute));
    return RunProgram(*onednn_, *train, RandomOperands(*train, 5));
  }

  struct TapedRun {
    std::vector<std::vector<std::byte>> results;  // As of a train.
    int64_t tape_bytes;
  };
  TapedRun TrainWithTape(bool recompute) const {
    ProgramRequest request =
        RequestFor(ProgramPart::kForwardTape, GetParam(), recompute);
    const int64_t tape_bytes = PlanOf(request)->tape_bytes();
    request.tape_bytes = tape_bytes;
    const auto forward = Operation(request);
    auto operands = RandomOperands(*forward, 5);
    std::vector<std::vector<std::byte>> results =
        RunProgram(*onednn_, *forward, operands).results;
    request = RequestFor(ProgramPart::kBackward, GetParam(), recompute);
    request.tape_bytes = tape_bytes;
    request.output_gradients = {"loss"};
    const auto backward = Operation(request);
    std::vector<std::byte> one(sizeof(float));
    StoreRounded(DataType::kF32, 1, one.data());
    operands[0] = std::exchange(results.back(), {});
    operands[1] = std::move(one);
    operands.pop_back();  // The randomness.
    results.pop_back();
    const GuardedRun back =
        RunProgram(*onednn_, *backward, std::move(operands));
    results.insert(results.end(), back.results.begin(), back.results.end());
    return {std::move(results), tape_bytes};
  }

  const std::unique_ptr<Backend> onednn_ = *MakeOnednnBackend();
};

INSTANTIATE_TEST_SUITE_P(Dtypes, Recompute,
                         testing::Values(DataType::kF32, DataType::kBF16));

TEST_P(Recompute, GivesTheBitsOfATrainInLessMemory) {
  EXPECT_EQ(Train(true).results, Train(false).results);
  const auto bytes = [&](bool recompute) {
    return PlanOf(RequestFor(ProgramPart::kTrain, GetParam(), recompute))
        ->scratch_bytes();
  };
  EXPECT_LT(bytes(true), 0.75 * static_cast<double>(bytes(false)));
}

TEST_P(Recompute, GivesTheBitsOfATrainFromALessLargeTape) {
  const TapedRun again = TrainWithTape(true), kept = TrainWithTape(false);
  const GuardedRun train = Train(false);
  EXPECT_EQ(again.results, train.results);
  EXPECT_EQ(kept.results, train.results);
  EXPECT_LT(again.tape_bytes, 0.75 * static_cast<double>(kept.tape_bytes));
}

}  // namespace
}  // namespace convgrad
