#include "backends/onednn/onednn_backend.h"
#include "tests/conformance/conformance_suite.h"

namespace convgrad::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Basic, ConformanceTest,
                         CasesOf(&MakeOnednnBackend, "shapes_basic.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(WholeOperator, ConformanceTest,
                         CasesOf(&MakeOnednnBackend,
                                 "shapes_whole_operator.txt"),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(Random, ConformanceTest,
                         RandomCasesOf(&MakeOnednnBackend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Onednn, RefusalTest,
                         testing::Values(Refusals{
                             &MakeOnednnBackend,
                             {Layout::kNCX, Layout::kNXC, Layout::kOIX,
                              Layout::kOXI, Layout::kXIO, Layout::kNDC1HWC0,
                              Layout::kFractalZ3D},
                             {}}),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
