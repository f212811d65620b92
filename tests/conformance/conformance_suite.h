// `ConformanceTest` is the suite that every backend must pass, written once
// against Backend. A backend's test file names its factory and instantiates
// ConformanceTest over the shape lists, and RefusalTest over the operations
// that it refuses:
//
//   INSTANTIATE_TEST_SUITE_P(Basic, ConformanceTest,
//                            CasesOf(&MakeFooBackend, "shapes_basic.txt"),
//                            NameOfCase);
//   INSTANTIATE_TEST_SUITE_P(Foo, RefusalTest,
//                            testing::Values(Refusals{&MakeFooBackend,
//                                                     {Layout::kNCX, ...},
//                                                     {}}));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/backend.h"
#include "backends/core/convolution/conv_operation.h"
#include "gtest/gtest.h"

namespace convgrad::testing_support {

using BackendFactory = absl::StatusOr<std::unique_ptr<Backend>> (*)();

struct ConformanceCase {
  BackendFactory make_backend;
  std::string problem;  // for Parse
};

// Returns one case for each line of a shape list beside this header.
testing::internal::ParamGenerator<ConformanceCase> CasesOf(
    BackendFactory make_backend, const std::string& shape_list);

// Returns one case for each of 100 random problems, the same ones each time.
testing::internal::ParamGenerator<ConformanceCase> RandomCasesOf(
    BackendFactory make_backend);

// Returns the problem string, which is a valid test name.
std::string NameOfCase(const testing::TestParamInfo<ConformanceCase>& info);

// Checks every promise of proto/correctness.md, "Single results", for one
// problem.
class ConformanceTest : public testing::TestWithParam<ConformanceCase> {
 protected:
  void SetUp() override;

  const Backend* backend_ = nullptr;
  ConvProblem problem_;
};

// The operations that a backend refuses, of all operations of all shape lists.
// The dtypes depend on the machine, so they are taken from the backend's
// capabilities.
struct Refusals {
  BackendFactory make_backend;
  // Exactly the layouts of its capabilities. The backend must refuse other
  // layouts.
  std::vector<Layout> layouts;
  // Refusals in listed dtypes and layouts, exactly: one "<count> x <message>"
  // for each message of CheckSupport.
  std::vector<std::string> gaps;
};

class RefusalTest : public testing::TestWithParam<Refusals> {};

}  // namespace convgrad::testing_support
