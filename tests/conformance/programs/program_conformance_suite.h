// `ProgramConformanceTest` is the suite for programs that every backend must
// pass, beside the suite for convolutions. A backend's test file names its
// factory:
//
//   INSTANTIATE_TEST_SUITE_P(Programs, ProgramConformanceTest,
//                            ProgramCasesOf(&MakeFooBackend), NameOfProgram);
//   INSTANTIATE_TEST_SUITE_P(Foo, RandomProgramTest,
//                            testing::Values(&MakeFooBackend));
//   INSTANTIATE_TEST_SUITE_P(Foo, ProgramRefusalTest,
//                            testing::Values(ProgramRefusals{
//                                &MakeFooBackend, {DataType::kF32},
//                                {"dropout", ...}}));
//
// The first two skip programs that a backend refuses; the third must list them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/conformance_suite.h"
#include "tests/conformance/programs/program_list.h"

namespace convgrad::testing_support {

struct ProgramConformanceCase {
  BackendFactory make_backend;
  ProgramCase given;
};

// Makes a failure name the program.
inline void PrintTo(const ProgramConformanceCase& each, std::ostream* out) {
  *out << each.given.name;
}

// Returns one case for each program of programs.txt.
testing::internal::ParamGenerator<ProgramConformanceCase> ProgramCasesOf(
    BackendFactory make_backend);

std::string NameOfProgram(
    const testing::TestParamInfo<ProgramConformanceCase>& info);

// Checks every promise of proto/correctness.md, "Networks", for one program.
class ProgramConformanceTest
    : public testing::TestWithParam<ProgramConformanceCase> {
 protected:
  void SetUp() override;

  const Backend* backend_ = nullptr;
  ProgramCase given_;
};

// Runs 200 random programs, and 10 for Winograd's algorithm on backends that
// have it. CONVGRAD_RANDOM_PROGRAMS=FIRST:END selects other seeds, as a range
// without its end.
class RandomProgramTest : public testing::TestWithParam<BackendFactory> {};

// The programs of programs.txt that a backend refuses.
struct ProgramRefusals {
  BackendFactory make_backend;
  // The backend refuses all programs in other dtypes.
  std::vector<DataType> compute_dtypes;
  // The names of programs that it refuses in these dtypes, in any part.
  std::vector<std::string> names;
};

class ProgramRefusalTest : public testing::TestWithParam<ProgramRefusals> {};

}  // namespace convgrad::testing_support
