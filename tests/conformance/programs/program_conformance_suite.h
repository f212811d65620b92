// The suite for programs that every backend must pass, beside that for
// convolutions. A backend's test file names its factory:
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
// What a backend refuses is passed over by the first two, and has to be listed
// in the third.
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

// So that a failure names the program.
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

// 200 random programs, or CONVGRAD_RANDOM_PROGRAMS.
class RandomProgramTest : public testing::TestWithParam<BackendFactory> {};

// Which programs of programs.txt a backend refuses.
struct ProgramRefusals {
  BackendFactory make_backend;
  // In others it refuses all programs.
  std::vector<DataType> compute_dtypes;
  // What it refuses in these, in any part.
  std::vector<std::string> names;
};

class ProgramRefusalTest : public testing::TestWithParam<ProgramRefusals> {};

}  // namespace convgrad::testing_support
