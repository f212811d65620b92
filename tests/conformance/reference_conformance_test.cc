#include "backends/reference/reference_backend.h"
#include "tests/conformance/conformance_suite.h"

namespace convgrad::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Basic, ConformanceTest,
                         CasesOf(&MakeReferenceBackend, "shapes_basic.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(WholeOperator, ConformanceTest,
                         CasesOf(&MakeReferenceBackend,
                                 "shapes_whole_operator.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Random, ConformanceTest,
                         RandomCasesOf(&MakeReferenceBackend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Reference, RefusalTest,
                         testing::Values(Refusals{
                             &MakeReferenceBackend,
                             {Layout::kNCX, Layout::kNXC, Layout::kOIX,
                              Layout::kOXI, Layout::kXIO, Layout::kNDC1HWC0,
                              Layout::kFractalZ3D},
                             {}}),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
