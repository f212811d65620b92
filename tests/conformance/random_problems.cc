// This program compares random operations of one backend with the reference,
// with canaries and NaN-filled buffers: integers bit for bit, then reals within
// the bounds.
//
//   random_problems --seed=1 --count=2000
#include <iostream>
#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "backends/registry.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/conformance/checked_run.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/random_operation.h"

ABSL_FLAG(uint32_t, seed, 1, "of the first operation");
ABSL_FLAG(int, count, 2000, "operations");
ABSL_FLAG(int64_t, max_macs, 5'000'000, "multiply-adds of one, at most");
ABSL_FLAG(std::string, backend, "onednn", "which backend");
ABSL_FLAG(bool, allow_unimplemented, false,
          "UNIMPLEMENTED for a valid operation is no failure");

namespace convgrad::testing_support {
namespace {

template <typename Fill>
ExactOperands FillOperands(const ConvOperation& operation, const Fill& fill) {
  ExactOperands operands;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor) continue;
    const auto i = static_cast<size_t>(which);
    operands[i] = fill(ElementCount(*tensor), i);
  }
  return operands;
}

class RandomRun {
 public:
  explicit RandomRun(const Backend& backend) : backend_(backend) {}

  // Runs the operation of `seed`.
  void Run(uint32_t seed) {
    std::mt19937 random(seed);
    const ConvOperation operation =
        RandomOperation(absl::GetFlag(FLAGS_max_macs), &random);
    const bool passed =
        Check(operation, FillOperands(operation, &IntegerFill), true) &&
        Check(operation,
              FillOperands(operation,
                           [&](int64_t count, uint64_t fill_seed) {
                             return RealFill(count, fill_seed,
                                             operation.dtype());
                           }),
              false);
    ++(passed ? passed_ : failed_);
    if (!passed) Print(seed, operation);
  }

  // Returns the exit code.
  int Summarise() const {
    std::cout << passed_ << " operations passed, " << failed_ << " failed, "
              << refused_ << " runs refused\n";
    for (const auto& [reason, count] : refusals_) {
      std::cout << "refused " << count << " x " << reason << "\n";
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  // Collects the failures that the checks report.
  bool Check(const ConvOperation& operation, const ExactOperands& operands,
             bool integers) {
    testing::TestPartResultArray failures;
    bool passed = false;
    {
      const testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::
              INTERCEPT_ONLY_CURRENT_THREAD,
          &failures);
      passed = RunAndCompare(operation, operands, integers);
    }
    for (int i = 0; i < failures.size(); ++i) {
      std::cout << failures.GetTestPartResult(i).message() << "\n";
    }
    return passed && failures.size() == 0;
  }

  bool RunAndCompare(const ConvOperation& operation,
                     const ExactOperands& operands, bool integers) {
    const auto results = RunChecked(backend_, operation, operands);
    if (absl::IsUnimplemented(results.status())) {
      ++refused_;
      ++refusals_[std::string(results.status().message())];
      return absl::GetFlag(FLAGS_allow_unimplemented);
    }
    if (!results.ok()) {
      std::cout << results.status() << "\n";
      return false;
    }
    for (size_t i = 0; i < results->size(); ++i) {
      const StoredResult got{&operation, &operation.results[i],
                             (*results)[i].data()};
      Compare(got, operands, integers);
    }
    return true;
  }

  static void Compare(const StoredResult& got, const ExactOperands& operands,
                      bool integers) {
    const Result which = got.request->which;
    if (integers) {
      EXPECT_TRUE(IsExactly(got, ExpectExact(*got.operation, which, operands)));
      return;
    }
    const ExpectedResult expected =
        ExpectZeroMean(*got.operation, which, operands);
    EXPECT_TRUE(IsWithinBound(got, expected, DataKind::kZeroMean));
    EXPECT_TRUE(IsWithinNorm(got, expected));
  }

  // Prints how to reproduce the operation, here and with the command line tool.
  static void Print(uint32_t seed, const ConvOperation& operation) {
    std::cout << "FAILED " << ToString(operation) << "\n  random_problems "
              << "--seed=" << seed << " --count=1\n  convgrad "
              << NameOf(operation.direction) << " "
              << ToString(operation.problem)
              << " --dtype=" << NameOf(operation.dtype()) << std::endl;
  }

  const Backend& backend_;
  int passed_ = 0, failed_ = 0, refused_ = 0;
  std::map<std::string, int> refusals_;
};

int Main() {
  for (const RegisteredBackend& entry : MakeBackends()) {
    if (entry.name != absl::GetFlag(FLAGS_backend)) continue;
    if (!entry.backend.ok()) {
      std::cout << entry.backend.status() << "\n";
      return 1;
    }
    RandomRun run(**entry.backend);
    const uint32_t seed = absl::GetFlag(FLAGS_seed);
    for (int i = 0; i < absl::GetFlag(FLAGS_count); ++i) run.Run(seed + i);
    std::cout << "seed " << seed << ": ";
    return run.Summarise();
  }
  std::cout << "no backend " << absl::GetFlag(FLAGS_backend) << " here\n";
  return 1;
}

}  // namespace
}  // namespace convgrad::testing_support

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  absl::ParseCommandLine(argc, argv);
  return convgrad::testing_support::Main();
}
