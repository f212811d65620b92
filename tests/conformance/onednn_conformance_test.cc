#include "backends/onednn/onednn_backend.h"
#include "tests/conformance/conformance_suite.h"

namespace convgrad::testing_support {
namespace {

// Makes both implementations of bf16, whichever is faster on this CPU.
absl::StatusOr<std::unique_ptr<Backend>> MakeNativeBf16Backend() {
  return MakeOnednnBackend(/*native_bf16=*/true);
}
absl::StatusOr<std::unique_ptr<Backend>> MakeF32Backend() {
  return MakeOnednnBackend(/*native_bf16=*/false);
}

INSTANTIATE_TEST_SUITE_P(Basic, ConformanceTest,
                         CasesOf(&MakeF32Backend, "shapes_basic.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(WholeOperator, ConformanceTest,
                         CasesOf(&MakeF32Backend, "shapes_whole_operator.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Random, ConformanceTest,
                         RandomCasesOf(&MakeF32Backend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(NativeBf16Basic, ConformanceTest,
                         CasesOf(&MakeNativeBf16Backend, "shapes_basic.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(NativeBf16Random, ConformanceTest,
                         RandomCasesOf(&MakeNativeBf16Backend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Onednn, RefusalTest,
                         testing::Values(Refusals{
                             &MakeF32Backend,
                             {Layout::kNCX, Layout::kNXC, Layout::kOIX,
                              Layout::kOXI, Layout::kXIO, Layout::kNDC1HWC0,
                              Layout::kFractalZ3D},
                             {}}),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
