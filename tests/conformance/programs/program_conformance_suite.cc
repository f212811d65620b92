#include "tests/conformance/programs/program_conformance_suite.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "tests/conformance/programs/program_accuracy.h"
#include "tests/conformance/programs/program_run.h"
#include "tests/conformance/programs/program_update.h"
#include "tests/conformance/programs/random_program.h"

namespace convgrad::testing_support {
namespace {

constexpr char kSeedsVariable[] = "CONVGRAD_RANDOM_PROGRAMS";
constexpr DataType kComputeDtypes[] = {DataType::kF32, DataType::kBF16};

const Backend* BackendOf(BackendFactory make_backend) {
  static auto& backends =
      *new std::map<BackendFactory, absl::StatusOr<std::unique_ptr<Backend>>>;
  auto [entry, is_new] = backends.try_emplace(make_backend);
  if (is_new) entry->second = make_backend();
  EXPECT_TRUE(entry->second.ok()) << entry->second.status();
  return entry->second.ok() ? entry->second->get() : nullptr;
}

std::vector<ProgramCase> ListedPrograms() {
  return ReadProgramList(absl::StrCat(CONVGRAD_SHAPE_LISTS, "/programs.txt"));
}

// Returns whether `backend` has no plan for a part of the program.
bool IsRefused(const Backend& backend, const ProgramCase& given,
               DataType dtype) {
  for (const ProgramPart part :
       {ProgramPart::kForward, ProgramPart::kForwardTape,
        ProgramPart::kBackward}) {
    const auto operation =
        ProgramOperation::Make(RequestOf(given, part, dtype));
    EXPECT_TRUE(operation.ok()) << operation.status();
    if (!backend.MakePlan(**operation, PlanOptions()).ok()) return true;
  }
  return false;
}

bool HasLoss(const ProgramCase& given) {
  return InferShapes(*given.program, given.inputs)
      ->dims.at(given.program->outputs[0])
      .empty();
}

// Runs forward and backward, in one operation or in two.
absl::StatusOr<ProgramOutcome> RunBoth(const Backend& backend,
                                       const ProgramCase& given,
                                       ProgramPart part, DataType dtype,
                                       const ProgramData& data) {
  ProgramRequest request = RequestOf(given, part, dtype);
  return part == ProgramPart::kTrain
             ? RunProgram(backend, std::move(request), data)
             : RunProgramWithTape(backend, std::move(request), data);
}

// Returns the parts of a program that include a backward.
std::vector<ProgramPart> PartsOf(const ProgramCase& given) {
  std::vector<ProgramPart> parts = {ProgramPart::kForwardTape};
  if (HasLoss(given)) parts.push_back(ProgramPart::kTrain);
  return parts;
}

// Counts the compared runs, and those compared with gradients.
struct Compared {
  int runs = 0, gradients = 0;
};

// Returns whether the backend computes a convolution by Winograd's algorithm.
bool HasFastGroup(const Backend& backend, const ProgramCase& given,
                  DataType dtype) {
  const auto operation = ProgramOperation::Make(
      RequestOf(given, ProgramPart::kForwardTape, dtype));
  EXPECT_TRUE(operation.ok()) << operation.status();
  if (!operation.ok()) return false;
  const auto plan = backend.MakePlan(**operation, PlanOptions());
  return plan.ok() &&
         absl::c_any_of((*plan)->groups(),
                        [](const FusedSteps& group) { return group.is_fast; });
}

// Checks one program on real numbers. Refusals pass.
void CheckAccuracy(const Backend& backend, const ProgramCase& given,
                   DataType dtype, uint64_t seed, Compared* compared) {
  for (const ProgramPart part : PartsOf(given)) {
    const bool is_train = part == ProgramPart::kTrain;
    const auto operation = ProgramOperation::Make(
        RequestOf(given, is_train ? part : ProgramPart::kBackward, dtype));
    ASSERT_TRUE(operation.ok()) << operation.status();
    // Near a kink two correct results may differ by much, so the test uses
    // other data, or otherwise only the forward.
    constexpr uint64_t kTries = 8;
    ProgramData data = RealProgramData(given, seed);
    bool is_near_kink = IsNearKink(**operation, data);
    for (uint64_t i = 1; i < kTries && is_near_kink; ++i) {
      data = RealProgramData(given, seed + i * 100'000);
      is_near_kink = IsNearKink(**operation, data);
    }
    const auto got = RunBoth(backend, given, part, dtype, data);
    if (absl::IsUnimplemented(got.status())) continue;
    ASSERT_TRUE(got.ok()) << got.status();
    compared->runs += 1;
    compared->gradients += is_near_kink ? 0 : 1;
    ProgramTruth truth = TruthOf(**operation, data);
    truth.is_fast = HasFastGroup(backend, given, dtype);
    EXPECT_TRUE(IsAccurate(*got, truth, dtype, !is_near_kink))
        << (is_train ? "train " : "tape ") << NameOf(dtype);
    CheckUpdate(backend, *given.program, data.values, got->gradients, seed);
    // Inference may fuse more steps.
    const auto inferred = RunProgram(
        backend, RequestOf(given, ProgramPart::kForward, dtype), data);
    if (absl::IsUnimplemented(inferred.status())) continue;
    ASSERT_TRUE(inferred.ok()) << inferred.status();
    EXPECT_TRUE(IsAccurate(*inferred, truth, dtype, false))
        << "forward " << NameOf(dtype);
  }
}

struct Seeds {
  uint64_t first = 1, end = 1;
};

// Returns the seeds of CONVGRAD_RANDOM_PROGRAMS, or otherwise `count` seeds.
Seeds SeedsOr(uint64_t count) {
  const char* text = std::getenv(kSeedsVariable);
  if (text == nullptr) return {1, 1 + count};
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  Seeds seeds;
  EXPECT_TRUE(absl::SimpleAtoi(parts.first, &seeds.first) &&
              absl::SimpleAtoi(parts.second, &seeds.end) &&
              seeds.first < seeds.end)
      << kSeedsVariable << ": found " << text << ", expected FIRST:END";
  return seeds;
}

void CheckRandom(const Backend& backend, const ProgramCase& given,
                 DataType dtype, uint64_t seed, Compared* compared) {
  SCOPED_TRACE(absl::StrCat("seed ", seed, ", x of ",
                            ToString(absl::MakeConstSpan(given.inputs[0])),
                            "\n", ToString(*given.program)));
  ASSERT_TRUE(Validate(*given.program).ok()) << Validate(*given.program);
  CheckAccuracy(backend, given, dtype, seed, compared);
}

void Record(const Compared& compared) {
  testing::Test::RecordProperty("runs_compared", compared.runs);
  testing::Test::RecordProperty("gradients_compared", compared.gradients);
  // More than half of the runs must have gradients, or the test would say
  // little about them. A few seeds of a search may all be near kinks.
  if (std::getenv(kSeedsVariable) != nullptr) return;
  EXPECT_LE(compared.runs, 2 * compared.gradients);
}

// Returns 1, 2 or 3 for NaN, +Inf and -Inf, and 0 for a number.
int KindOf(double value) {
  if (std::isnan(value)) return 1;
  return std::isinf(value) ? (value > 0 ? 2 : 3) : 0;
}

// Returns data for each input that isn't an index, with `value` in its middle.
std::vector<ProgramData> DataWith(const ProgramCase& given, double value) {
  std::vector<ProgramData> all;
  for (const ProgramInput& input : given.program->inputs) {
    if (input.is_index) continue;
    all.push_back(IntegerProgramData(given, 5));
    Values& values = all.back().values.at(input.name);
    values[values.size() / 2] = value;
  }
  return all;
}

void ExpectSameKinds(const NamedValues& got, const NamedValues& expected) {
  for (const auto& [name, values] : got) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(KindOf(values[i]), KindOf(expected.at(name)[i]))
          << name << "[" << i << "]: " << values[i] << ", expected "
          << expected.at(name)[i];
    }
  }
}

void ExpectSame(const NamedValues& got, const NamedValues& expected) {
  for (const auto& [name, values] : got) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], expected.at(name)[i]) << name << "[" << i << "]";
    }
  }
}

}  // namespace

testing::internal::ParamGenerator<ProgramConformanceCase> ProgramCasesOf(
    BackendFactory make_backend) {
  std::vector<ProgramConformanceCase> cases;
  for (ProgramCase& given : ListedPrograms()) {
    cases.push_back({make_backend, std::move(given)});
  }
  return testing::ValuesIn(cases);
}

std::string NameOfProgram(
    const testing::TestParamInfo<ProgramConformanceCase>& info) {
  return info.param.given.name;
}

void ProgramConformanceTest::SetUp() {
  given_ = GetParam().given;
  backend_ = BackendOf(GetParam().make_backend);
  ASSERT_NE(backend_, nullptr);
}

TEST_P(ProgramConformanceTest, IntegersAreExact) {
  if (!given_.words.contains("exact")) return;
  for (const DataType dtype : kComputeDtypes) {
    const ProgramData data = IntegerProgramData(given_, 1);
    const auto operation = *ProgramOperation::Make(
        RequestOf(given_, ProgramPart::kBackward, dtype));
    const auto got =
        RunBoth(*backend_, given_, ProgramPart::kForwardTape, dtype, data);
    if (absl::IsUnimplemented(got.status())) continue;
    ASSERT_TRUE(got.ok()) << got.status();
    const ProgramTruth truth = TruthOf(*operation, data);
    ExpectSame(got->values, truth.exact.values);
    ExpectSame(got->gradients, truth.exact.gradients);
  }
}

TEST_P(ProgramConformanceTest, RealsAreWithinBounds) {
  Compared compared;
  for (const DataType dtype : kComputeDtypes) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      CheckAccuracy(*backend_, given_, dtype, seed, &compared);
    }
  }
  EXPECT_TRUE(compared.runs == 0 || compared.gradients > 0);
}

// Inputs of the same numbers in another dtype or layout give the same results.
// The runs have a tape, because inference may round a batch_norm's factors into
// weights.
TEST_P(ProgramConformanceTest, InputsMayLieInAnyWay) {
  ProgramData data = IntegerProgramData(given_, 2);
  for (const ProgramInput& input : given_.program->inputs) {
    if (input.is_index) continue;
    for (double& value : data.values.at(input.name)) value = std::fabs(value);
  }
  const ProgramRequest plain = RequestOf(given_, ProgramPart::kForwardTape);
  const auto expected = RunProgramWithTape(*backend_, plain, data);
  if (absl::IsUnimplemented(expected.status())) return;
  ASSERT_TRUE(expected.ok()) << expected.status();
  const ProgramTruth truth = TruthOf(
      **ProgramOperation::Make(RequestOf(given_, ProgramPart::kBackward)),
      data);
  for (const DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16,
                               DataType::kU8, DataType::kU16}) {
    for (const Layout layout : {Layout::kNCX, Layout::kNXC}) {
      ProgramRequest request = plain;
      for (size_t i = 0; i < request.inputs.size(); ++i) {
        if (given_.program->inputs[i].is_index) continue;
        request.inputs[i].dtype = dtype;
        request.inputs[i].layout = layout;
      }
      const auto got = RunProgramWithTape(*backend_, request, data);
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectSame(got->values, expected->values);
      request.part = ProgramPart::kForward;
      const auto inferred = RunProgram(*backend_, request, data);
      ASSERT_TRUE(inferred.ok()) << inferred.status();
      EXPECT_TRUE(IsAccurate(*inferred, truth, DataType::kF32, false));
    }
  }
}

// The set of fetched values and gradients changes no bit of any result.
TEST_P(ProgramConformanceTest, WhatIsAskedForChangesNoOtherBit) {
  const ProgramData data = RealProgramData(given_, 4);
  const ProgramRequest plain = RequestOf(given_, ProgramPart::kForwardTape);
  const auto expected = RunProgramWithTape(*backend_, plain, data);
  if (absl::IsUnimplemented(expected.status())) return;
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const ProgramStep& step : given_.program->steps) {
    ProgramRequest request = plain;
    request.fetched = {step.result};
    const auto got = RunProgramWithTape(*backend_, request, data);
    if (absl::IsUnimplemented(got.status())) continue;
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSame(got->gradients, expected->gradients);
  }
  ProgramRequest inputs = plain;
  inputs.parameter_gradients = false;
  ProgramRequest parameters = plain;
  parameters.input_gradients.assign(plain.inputs.size(), false);
  for (const ProgramRequest& request : {inputs, parameters}) {
    const auto got = RunProgramWithTape(*backend_, request, data);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSame(got->values, expected->values);
    ExpectSame(got->gradients, expected->gradients);
  }
}

TEST_P(ProgramConformanceTest, NanGoesThroughForwardAndBackward) {
  const auto reference = *MakeReferenceBackend();
  for (const DataType dtype : kComputeDtypes) {
    for (const ProgramData& data :
         DataWith(given_, std::numeric_limits<double>::quiet_NaN())) {
      const auto got =
          RunBoth(*backend_, given_, ProgramPart::kForwardTape, dtype, data);
      if (absl::IsUnimplemented(got.status())) continue;
      ASSERT_TRUE(got.ok()) << got.status();
      const auto expected =
          *RunBoth(*reference, given_, ProgramPart::kForwardTape, dtype, data);
      ExpectSameKinds(got->values, expected.values);
      ExpectSameKinds(got->gradients, expected.gradients);
      const auto inferred = RunProgram(
          *backend_, RequestOf(given_, ProgramPart::kForward, dtype), data);
      ASSERT_TRUE(inferred.ok()) << inferred.status();
      ExpectSameKinds(inferred->values, expected.values);
    }
  }
}

TEST_P(ProgramConformanceTest, InfinitiesGoThroughForward) {
  const auto reference = *MakeReferenceBackend();
  for (const double infinity : {std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity()}) {
    for (const ProgramData& data : DataWith(given_, infinity)) {
      const ProgramRequest request = RequestOf(given_, ProgramPart::kForward);
      const auto got = RunProgram(*backend_, request, data);
      if (absl::IsUnimplemented(got.status())) continue;
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectSameKinds(got->values,
                      RunProgram(*reference, request, data)->values);
    }
  }
}

TEST_P(RandomProgramTest, AreWithinBounds) {
  const Backend* backend = BackendOf(GetParam());
  ASSERT_NE(backend, nullptr);
  const Seeds seeds = SeedsOr(200);
  Compared compared;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    CheckRandom(*backend, RandomProgram(seed), kComputeDtypes[seed % 2], seed,
                &compared);
    if (HasFailure()) break;
  }
  Record(compared);
}

TEST_P(RandomProgramTest, FastOnesAreWithinBounds) {
  const Backend* backend = BackendOf(GetParam());
  ASSERT_NE(backend, nullptr);
  const Seeds seeds = SeedsOr(10);
  Compared compared;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    const ProgramCase given = RandomFastProgram(seed);
    if (!HasFastGroup(*backend, given, DataType::kF32)) continue;
    CheckRandom(*backend, given, DataType::kF32, seed, &compared);
    if (HasFailure()) break;
  }
  Record(compared);
}

TEST_P(ProgramRefusalTest, AreThoseListed) {
  const Backend* backend = BackendOf(GetParam().make_backend);
  ASSERT_NE(backend, nullptr);
  for (const DataType dtype : kComputeDtypes) {
    std::vector<std::string> refused, all;
    for (const ProgramCase& given : ListedPrograms()) {
      all.push_back(given.name);
      if (IsRefused(*backend, given, dtype)) refused.push_back(given.name);
    }
    const bool is_listed =
        absl::c_linear_search(GetParam().compute_dtypes, dtype);
    EXPECT_THAT(refused, testing::UnorderedElementsAreArray(
                             is_listed ? GetParam().names : all))
        << NameOf(dtype);
  }
}

}  // namespace convgrad::testing_support
