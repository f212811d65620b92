// Runs the suite on a machine with a GPU. Without a GPU the exit status is 77,
// which counts as skipped.
#include <iostream>

#include "backends/cuda/cuda_backend.h"
#include "gmock/gmock.h"
#include "tests/conformance/conformance_suite.h"

namespace convgrad::testing_support {
namespace {

constexpr int kSkipped = 77;

INSTANTIATE_TEST_SUITE_P(Basic, ConformanceTest,
                         CasesOf(&MakeCudaBackend, "shapes_basic.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(WholeOperator, ConformanceTest,
                         CasesOf(&MakeCudaBackend, "shapes_whole_operator.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Random, ConformanceTest,
                         RandomCasesOf(&MakeCudaBackend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Cuda, RefusalTest,
                         testing::Values(Refusals{
                             &MakeCudaBackend,
                             {Layout::kNCX, Layout::kNXC, Layout::kOIX,
                              Layout::kOXI, Layout::kXIO, Layout::kNDC1HWC0,
                              Layout::kFractalZ3D},
                             {}}),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const absl::Status status = convgrad::MakeCudaBackend().status();
  if (absl::IsFailedPrecondition(status)) {
    std::cout << "skipped: " << status.message() << std::endl;
    return convgrad::testing_support::kSkipped;
  }
  return RUN_ALL_TESTS();
}
