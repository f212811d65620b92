#include "backends/onednn/onednn_backend.h"
#include "tests/conformance/program_conformance_suite.h"

namespace convgrad::testing_support {
namespace {

constexpr BackendFactory kMakeBackend = &MakeOnednnBackend;

INSTANTIATE_TEST_SUITE_P(Programs, ProgramConformanceTest,
                         ProgramCasesOf(kMakeBackend), NameOfProgram);
INSTANTIATE_TEST_SUITE_P(Onednn, RandomProgramTest,
                         testing::Values(kMakeBackend),
                         [](const auto&) { return "All"; });
// It refuses every program in bf16.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProgramRefusalTest);

}  // namespace
}  // namespace convgrad::testing_support
