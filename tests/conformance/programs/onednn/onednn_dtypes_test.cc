// Tests which values of a bf16 network keep f32, forward and backward.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/programs/onednn/guarded_run.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kCount = 2 * 5 * 8;  // elements of a value

// Positions are added to tokens, which pass two residual blocks.
constexpr char kTokens[] = R"(input x
parameter p [1, 5, 8]
parameter w [8, 8]
a = read(p)
s = add(x, a)
v = reshape(s, shape=[-1, 40])
u = reshape(v, shape=[-1, 5, 8])
l = linear(u, w)
t = add(u, l)
n = layer_norm(t, none, none)
o = add(t, n)
)";

// Returns whether a rounding to bf16 changes a number.
bool NeedsF32(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return (bits & 0xffffU) != 0;
}

int CountOfF32(const Floats& numbers) {
  return static_cast<int>(
      std::count_if(numbers.begin(), numbers.end(), &NeedsF32));
}

std::shared_ptr<const ProgramOperation> OperationOf(
    const std::string& text, const std::vector<std::string>& fetched,
    ProgramPart part, size_t inputs = 1) {
  ProgramRequest request;
  request.part = part;
  request.compute_dtype = DataType::kBF16;
  request.fetched = fetched;
  request.inputs.resize(inputs);
  for (TensorDescriptor& input : request.inputs) input.dims = {2, 5, 8};
  request.input_gradients.assign(inputs, true);
  return MakeProgramOperation(text, std::move(request));
}

class Dtypes : public testing::Test {
 protected:
  GuardedRun Run(const ProgramOperation& operation) const {
    return RunProgram(*onednn_, operation, RandomOperands(operation, 1));
  }

  const std::unique_ptr<Backend> onednn_ = *MakeOnednnBackend();
};

TEST_F(Dtypes, SumsWithAParameterKeepF32ToTheNextProduct) {
  const auto operation =
      OperationOf(absl::StrCat(kTokens, "output o\n"),
                  {"a", "s", "l", "t", "o"}, ProgramPart::kForward);
  const auto operands = RandomOperands(*operation, 1);
  const GuardedRun run = RunProgram(*onednn_, *operation, operands);
  Floats p(40);
  std::memcpy(p.data(), operands[1].data(), p.size() * sizeof(float));
  EXPECT_EQ(run.Floats(0), p);
  const Floats s = run.Floats(1), l = run.Floats(2), t = run.Floats(3);
  EXPECT_GT(CountOfF32(s), kCount / 2);
  EXPECT_EQ(CountOfF32(l), 0);
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(t[i], s[i] + l[i]) << i;
  EXPECT_GT(CountOfF32(run.Floats(4)), kCount / 2);
}

TEST_F(Dtypes, GradientsOfSuchSumsKeepF32) {
  const GuardedRun run =
      Run(*OperationOf(absl::StrCat("input target\n", kTokens,
                                    "loss = mse(o, target)\noutput loss\n"),
                       {}, ProgramPart::kTrain, 2));
  // Results: the loss, and the gradients of target, x and p. That of x is
  // rounded, because x is bf16, so it doesn't sum up to p's.
  const Floats x = run.Floats(2), p = run.Floats(3);
  EXPECT_EQ(CountOfF32(x), 0);
  int equal = 0;
  for (size_t i = 0; i < p.size(); ++i) equal += p[i] == x[i] + x[i + 40];
  EXPECT_LT(equal, 20);
  ASSERT_EQ(p.size(), 40U);
  EXPECT_GT(CountOfF32(p), 20);
}

TEST_F(Dtypes, OtherValuesAreRounded) {
  constexpr char kRounded[] =
      "input x\nparameter w [8, 8]\na = add(x, x)\nb = exp(a)\n"
      "c = linear(b, w)\nd = add(b, c)\noutput d\n";
  const GuardedRun run =
      Run(*OperationOf(kRounded, {"b", "d"}, ProgramPart::kForward));
  EXPECT_EQ(CountOfF32(run.Floats(0)), 0);
  EXPECT_EQ(CountOfF32(run.Floats(1)), 0);
}

}  // namespace
}  // namespace convgrad
