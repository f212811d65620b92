#include "tests/conformance/conformance_suite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/logical_tensor.h"
#include "gmock/gmock.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/nonfinite_check.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/random_problem.h"

namespace convgrad::testing_support {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Returns the one instance of a backend, because making one may probe the
// machine.
const Backend* BackendOf(BackendFactory make_backend) {
  static auto& backends =
      *new std::map<BackendFactory, absl::StatusOr<std::unique_ptr<Backend>>>;
  auto [entry, is_new] = backends.try_emplace(make_backend);
  if (is_new) entry->second = make_backend();
  EXPECT_TRUE(entry->second.ok()) << entry->second.status();
  return entry->second.ok() ? entry->second->get() : nullptr;
}

std::vector<std::vector<Result>> ResultSets() {
  std::vector<std::vector<Result>> sets = GradientSets();
  sets.push_back({Result::kOutput});
  return sets;
}

struct Dtypes {
  DataType operands, results, side;
};

constexpr Dtypes kDtypes[] = {
    {DataType::kF32, DataType::kF32, DataType::kF32},
    {DataType::kBF16, DataType::kBF16, DataType::kBF16},
    {DataType::kBF16, DataType::kF32, DataType::kF32},
    {DataType::kF16, DataType::kF16, DataType::kF32},
    {DataType::kF16, DataType::kF32, DataType::kF16},
};

OperationSpec Spec(const ConvProblem& problem, const Dtypes& dtypes,
                   const LayoutSet& layouts, std::vector<Result> results) {
  OperationSpec spec;
  spec.problem = problem;
  spec.results = std::move(results);
  spec.dtype = dtypes.operands;
  spec.result_dtype = dtypes.results;
  spec.side_dtype = dtypes.side;
  spec.layouts = layouts;
  return spec;
}

// Returns all row-major operations that a problem is tested with.
std::vector<ConvOperation> RowMajorOperations(const ConvProblem& problem) {
  std::vector<ConvOperation> operations;
  for (const Dtypes& dtypes : kDtypes) {
    for (const LayoutSet& layouts : RowMajorLayouts()) {
      for (const std::vector<Result>& results : ResultSets()) {
        operations.push_back(
            MakeOperation(Spec(problem, dtypes, layouts, results)));
      }
    }
    operations.push_back(
        MakeOperation(Spec(problem, dtypes, RowMajorLayouts()[0],
                           {Result::kGradResidual, Result::kGradBias,
                            Result::kGradWeight, Result::kGradInput})));
  }
  return operations;
}

// Returns all operations on channel blocks that a problem is tested with.
std::vector<ConvOperation> BlockedOperations(const ConvProblem& problem) {
  std::vector<ConvOperation> operations;
  for (const Dtypes& dtypes : kDtypes) {
    for (const LayoutSet& layouts : BlockedLayouts()) {
      operations.push_back(
          MakeOperation(Spec(problem, dtypes, layouts, {Result::kOutput})));
      operations.push_back(
          MakeOperation(Spec(problem, dtypes, layouts,
                             {Result::kGradInput, Result::kGradWeight,
                              Result::kGradBias, Result::kGradResidual})));
    }
  }
  return operations;
}

template <typename Fill>
ExactOperands FillOperands(const ConvOperation& operation, const Fill& fill) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    const auto i = static_cast<size_t>(which);
    operands[i] = fill(ElementCount(*operation.operand(which)), i);
  }
  return operands;
}

std::vector<double>& Get(ExactOperands& operands, Operand which) {
  return operands[static_cast<size_t>(which)];
}

// Returns small integers. The mask also contains 0, -0 and NaN, which block the
// gradient.
ExactOperands IntegerOperands(const ConvOperation& operation) {
  ExactOperands operands = FillOperands(operation, &IntegerFill);
  std::vector<double>& mask = Get(operands, Operand::kOutput);
  const double closed[] = {0.0, -0.0, kNaN};
  for (size_t i = 0; i < mask.size(); i += 5) mask[i] = closed[i / 5 % 3];
  return operands;
}

ExactOperands RealOperands(const ConvOperation& operation) {
  const DataType dtype = operation.dtype();
  return FillOperands(operation, [&](int64_t count, uint64_t seed) {
    return RealFill(count, seed, dtype);
  });
}

using Check = std::function<testing::AssertionResult(const StoredResult&)>;

// Runs the operation and applies `check` to each result. A refusal isn't a
// failure here; RefusalTest lists the allowed refusals.
void RunAndCheck(const Backend& backend, const ConvOperation& operation,
                 const ExactOperands& operands, const Check& check) {
  const auto results = RunChecked(backend, operation, operands);
  if (absl::IsUnimplemented(results.status())) return;
  ASSERT_TRUE(results.ok()) << ToString(operation) << ": " << results.status();
  for (size_t i = 0; i < operation.results.size(); ++i) {
    EXPECT_TRUE(
        check({&operation, &operation.results[i], (*results)[i].data()}));
  }
}

// Checks operations on integers. They share one expectation for each result,
// because dtypes and layouts don't change it.
void CheckExactly(const Backend& backend,
                  const std::vector<ConvOperation>& operations) {
  std::map<Result, ExpectedResult> expected;
  for (const ConvOperation& operation : operations) {
    const ExactOperands operands = IntegerOperands(operation);
    RunAndCheck(backend, operation, operands, [&](const StoredResult& got) {
      const Result which = got.request->which;
      auto [entry, is_new] = expected.try_emplace(which);
      if (is_new) entry->second = ExpectExact(operation, which, operands);
      // Larger sums may not be exact in f32.
      EXPECT_LT(entry->second.products, 1 << 20);
      return IsExactly(got, entry->second);
    });
    // The others would repeat the failure.
    if (testing::Test::HasFailure()) return;
  }
}

// Returns the forward and all gradients, row-major, in every combination of
// dtypes.
std::vector<ConvOperation> PlainOperations(const ConvProblem& problem,
                                           float scale = 1) {
  std::vector<ConvOperation> operations;
  for (const Dtypes& dtypes : kDtypes) {
    for (const std::vector<Result>& results :
         {GradientSets()[0], std::vector<Result>{Result::kOutput}}) {
      OperationSpec spec = Spec(problem, dtypes, RowMajorLayouts()[0], results);
      spec.scale = scale;
      operations.push_back(MakeOperation(spec));
    }
  }
  return operations;
}

testing::internal::ParamGenerator<ConformanceCase> MakeCases(
    BackendFactory make_backend, const std::vector<std::string>& problems) {
  std::vector<ConformanceCase> cases;
  for (const std::string& problem : problems) {
    cases.push_back({make_backend, problem});
  }
  return testing::ValuesIn(cases);
}

}  // namespace

testing::internal::ParamGenerator<ConformanceCase> CasesOf(
    BackendFactory make_backend, const std::string& shape_list) {
  return MakeCases(make_backend, ReadShapeList(shape_list));
}

testing::internal::ParamGenerator<ConformanceCase> RandomCasesOf(
    BackendFactory make_backend) {
  constexpr int kCount = 100;
  constexpr uint32_t kSeed = 1;
  constexpr int64_t kMaxMacs = 300'000;
  return MakeCases(make_backend, RandomProblems(kCount, kSeed, kMaxMacs));
}

std::string NameOfCase(const testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.problem;
}

void ConformanceTest::SetUp() {
  backend_ = BackendOf(GetParam().make_backend);
  ASSERT_NE(backend_, nullptr);
  const auto problem = Parse(GetParam().problem);
  ASSERT_TRUE(problem.ok()) << problem.status();
  problem_ = *problem;
}

TEST_P(ConformanceTest, IntegersAreExactInAllRowMajorLayouts) {
  CheckExactly(*backend_, RowMajorOperations(problem_));
}

TEST_P(ConformanceTest, IntegersAreExactInChannelBlocks) {
  CheckExactly(*backend_, BlockedOperations(problem_));
}

TEST_P(ConformanceTest, ScaledIntegersAreRoundedOnce) {
  CheckExactly(*backend_, PlainOperations(problem_, -0.375f));
  CheckExactly(*backend_, PlainOperations(problem_, 0.1f));
}

TEST_P(ConformanceTest, RealNumbersStayWithinTheBounds) {
  for (const ConvOperation& operation : PlainOperations(problem_)) {
    const ExactOperands operands = RealOperands(operation);
    RunAndCheck(*backend_, operation, operands, [&](const StoredResult& got) {
      const ExpectedResult expected =
          ExpectReal(operation, got.request->which, operands);
      const auto element = IsWithinBound(got, expected, DataKind::kZeroMean);
      return element ? IsWithinNorm(got, expected) : element;
    });
    if (HasFailure()) return;
  }
}

TEST_P(ConformanceTest, TheSameRequestGivesTheSameBytes) {
  for (const ConvOperation& operation : PlainOperations(problem_)) {
    const ExactOperands operands = RealOperands(operation);
    const auto first = RunChecked(*backend_, operation, operands);
    if (absl::IsUnimplemented(first.status())) continue;
    const auto second = RunChecked(*backend_, operation, operands);
    ASSERT_TRUE(first.ok() && second.ok()) << ToString(operation);
    for (size_t i = 0; i < first->size(); ++i) {
      EXPECT_EQ((*first)[i].Bytes(), (*second)[i].Bytes())
          << ToString(operation);
    }
  }
}

TEST_P(ConformanceTest, ClosedMaskHidesNonFiniteGradients) {
  problem_.relu = true;
  std::vector<ConvOperation> operations = PlainOperations(problem_);
  for (const ConvOperation& operation : operations) {
    if (operation.direction == Direction::kForward) continue;
    ExactOperands operands = IntegerOperands(operation);
    const std::vector<double>& mask = Get(operands, Operand::kOutput);
    std::vector<double>& gradient = Get(operands, Operand::kGradOutput);
    for (size_t i = 0; i < mask.size(); ++i) {
      if (!(mask[i] > 0)) gradient[i] = i % 2 ? kNaN : -kInf;
    }
    RunAndCheck(*backend_, operation, operands, [&](const StoredResult& got) {
      return IsExactly(got,
                       ExpectExact(operation, got.request->which, operands));
    });
  }
}

TEST_P(ConformanceTest, NonfiniteOperandsReachTheirSumsOnly) {
  problem_.relu = false;
  const absl::Span<const LayoutSet> layouts = RowMajorLayouts();
  for (const Dtypes& dtypes : {kDtypes[0], kDtypes[1]}) {
    for (const LayoutSet& set : {layouts[0], layouts[1]}) {
      for (const std::vector<Result>& results :
           {GradientSets()[0], std::vector<Result>{Result::kOutput}}) {
        ASSERT_TRUE(KeepsNonfiniteApart(
            *backend_, MakeOperation(Spec(problem_, dtypes, set, results))));
      }
    }
  }
}

TEST_P(ConformanceTest, ForwardReluKeepsNaN) {
  problem_.relu = true;
  for (const ConvOperation& operation : PlainOperations(problem_)) {
    if (operation.direction != Direction::kForward) continue;
    ExactOperands operands = IntegerOperands(operation);
    for (double& value : Get(operands, Operand::kInput)) value = kNaN;
    const std::vector<double> expected =
        ExactResult(operation, Result::kOutput, operands);
    RunAndCheck(*backend_, operation, operands, [&](const StoredResult& got) {
      const auto values = LoadLogical(got.request->descriptor, got.data);
      for (size_t i = 0; i < values.size(); ++i) {
        if (!std::isnan(expected[i]) || std::isnan(values[i])) continue;
        return testing::AssertionFailure()
               << ToString(operation) << ": element " << i << " got "
               << values[i] << ", expected NaN";
      }
      return testing::AssertionSuccess();
    });
  }
}

// Returns whether the backend lists all dtypes and layouts of the operation.
bool IsListed(const BackendCapabilities& listed,
              const ConvOperation& operation) {
  auto has = [](const auto& list, auto value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  auto is_listed = [&](const TensorDescriptor& tensor) {
    return has(listed.dtypes, tensor.dtype) &&
           has(listed.layouts, tensor.layout);
  };
  for (const auto& operand : operation.operands) {
    if (operand && !is_listed(*operand)) return false;
  }
  return std::all_of(operation.results.begin(), operation.results.end(),
                     [&](const ResultRequest& request) {
                       return is_listed(request.descriptor);
                     });
}

// Returns all operations that ConformanceTest makes of the shape lists.
std::vector<ConvOperation> AllOperations() {
  std::vector<ConvOperation> all;
  for (const char* list : {"shapes_basic.txt", "shapes_whole_operator.txt"}) {
    for (const std::string& text : ReadShapeList(list)) {
      const auto problem = Parse(text);
      EXPECT_TRUE(problem.ok()) << text << ": " << problem.status();
      if (!problem.ok()) continue;
      for (auto&& operations :
           {RowMajorOperations(*problem), BlockedOperations(*problem)}) {
        all.insert(all.end(), operations.begin(), operations.end());
      }
    }
  }
  return all;
}

TEST_P(RefusalTest, ListsF32AndExactlyTheExpectedLayouts) {
  const Backend* backend = BackendOf(GetParam().make_backend);
  ASSERT_NE(backend, nullptr);
  const BackendCapabilities listed = backend->capabilities();
  EXPECT_THAT(listed.layouts,
              testing::UnorderedElementsAreArray(GetParam().layouts));
  EXPECT_THAT(listed.dtypes, testing::Contains(DataType::kF32));
}

TEST_P(RefusalTest, RefusesExactlyWhatIsNotListedAndTheKnownGaps) {
  const Backend* backend = BackendOf(GetParam().make_backend);
  ASSERT_NE(backend, nullptr);
  const BackendCapabilities listed = backend->capabilities();
  std::map<std::string, int> counts;
  for (const ConvOperation& operation : AllOperations()) {
    const absl::Status support = backend->CheckSupport(operation);
    if (!IsListed(listed, operation)) {
      EXPECT_TRUE(absl::IsUnimplemented(support))
          << ToString(operation) << ": " << support;
    } else if (!support.ok()) {
      ++counts[std::string(support.message())];
    }
  }
  std::vector<std::string> gaps;
  for (const auto& [message, count] : counts) {
    gaps.push_back(absl::StrCat(count, " x ", message));
  }
  EXPECT_THAT(gaps, testing::UnorderedElementsAreArray(GetParam().gaps));
}

}  // namespace convgrad::testing_support
