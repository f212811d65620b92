#include "tests/cases/oracle/element_oracle.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "tests/cases/oracle/problem_data.h"
#include "tests/conformance/random_problem.h"

namespace convgrad::testing_support {
namespace {

using ::testing::Contains;
using ::testing::SizeIs;

// Returns the operation that asks for one result.
ConvOperation OperationFor(const ConvProblem& problem, Result which) {
  OperationSpec spec;
  spec.problem = problem;
  spec.results = {which};
  return MakeOperation(spec);
}

class ElementOracleTest : public testing::TestWithParam<std::string> {};

TEST_P(ElementOracleTest, AgreesWithTheReferenceOnEveryElement) {
  ConvProblem problem = *Parse(GetParam());
  problem.relu = problem.residual = false;
  if (problem.bias) problem.bias = PerChannelBiasDims(problem);
  ProblemData data(problem);
  const FilledOperands operands =
      data.Operands(Numbers::kReals, DataType::kF32);
  for (Result which : {Result::kOutput, Result::kGradInput, Result::kGradWeight,
                       Result::kGradBias}) {
    const ExpectedResult expected = data.Whole(
        OperationFor(problem, which), which, Numbers::kReals, DataType::kF32);
    const std::vector<Dims> all = ChooseElements(problem, which, 1 << 30);
    ASSERT_THAT(all, SizeIs(expected.value.size()));
    for (size_t i = 0; i < all.size(); ++i) {
      const ElementSum sum = ElementOf(problem, which, all[i], operands);
      EXPECT_NEAR(sum.value, expected.value[i], 1e-9) << NameOf(which);
      EXPECT_NEAR(std::sqrt(sum.squares), expected.root_sum_squares[i], 1e-9)
          << NameOf(which);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Random, ElementOracleTest,
                         testing::ValuesIn(RandomProblems(200, 3, 100'000)),
                         [](const auto& info) { return info.param; });

TEST(ChooseElementsTest, CornersBordersAndEveryGroupAreAmongThem) {
  const ConvProblem problem = *Parse("conv2d_n3_c32_o64_g8_i40x30_k3_p1");
  const std::vector<Dims> elements =
      ChooseElements(problem, Result::kOutput, 256);
  EXPECT_THAT(elements, SizeIs(testing::Ge(256)));
  for (int64_t h : {0, 39}) {
    for (int64_t w : {0, 29}) {
      EXPECT_THAT(elements, Contains(Dims{0, 0, h, w}));
      EXPECT_THAT(elements, Contains(Dims{2, 63, h, w}));
    }
  }
  std::set<int64_t> channels;
  for (const Dims& index : elements) channels.insert(index[1]);
  for (int64_t group = 0; group < 8; ++group) {
    EXPECT_THAT(channels, Contains(8 * group));
    EXPECT_THAT(channels, Contains(8 * group + 7));
  }
}

TEST(ChooseElementsTest, AreAlwaysTheSame) {
  const ConvProblem problem = *Parse("conv2d_n3_c32_o64_g8_i40x30_k3_p1");
  EXPECT_EQ(ChooseElements(problem, Result::kGradInput, 300),
            ChooseElements(problem, Result::kGradInput, 300));
}

TEST(ProblemDataTest, AmplitudeKeepsSumsExact) {
  // 4^2 * 2^20 products would reach 2^24.
  const ConvProblem large = *Parse("conv1d_n1_c1_o1_i1048576_k1");
  const ProblemData data(large);
  const FilledOperands operands =
      data.Operands(Numbers::kIntegers, DataType::kF32);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_LE(std::fabs(operands[0].At(i)), 2);
    EXPECT_GE(std::fabs(operands[0].At(i)), 1);
  }
}

}  // namespace
}  // namespace convgrad::testing_support
