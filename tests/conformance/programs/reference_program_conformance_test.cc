#include "backends/reference/reference_backend.h"
#include "tests/conformance/programs/program_conformance_suite.h"

namespace convgrad::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Programs, ProgramConformanceTest,
                         ProgramCasesOf(&MakeReferenceBackend), NameOfProgram);
INSTANTIATE_TEST_SUITE_P(Reference, RandomProgramTest,
                         testing::Values(&MakeReferenceBackend),
                         [](const auto&) { return "All"; });
INSTANTIATE_TEST_SUITE_P(
    Reference, ProgramRefusalTest,
    testing::Values(ProgramRefusals{
        &MakeReferenceBackend, {DataType::kF32, DataType::kBF16}, {}}),
    [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
