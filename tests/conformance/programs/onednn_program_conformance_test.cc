#include "backends/onednn/onednn_backend.h"
#include "tests/conformance/programs/program_conformance_suite.h"

namespace convgrad::testing_support {
namespace {

constexpr BackendFactory kMakeBackend = &MakeOnednnBackend;

INSTANTIATE_TEST_SUITE_P(Programs, ProgramConformanceTest,
                         ProgramCasesOf(kMakeBackend), NameOfProgram);
INSTANTIATE_TEST_SUITE_P(Onednn, RandomProgramTest,
                         testing::Values(kMakeBackend),
                         [](const auto&) { return "All"; });
INSTANTIATE_TEST_SUITE_P(
    Onednn, ProgramRefusalTest,
    testing::Values(ProgramRefusals{
        kMakeBackend, {DataType::kF32, DataType::kBF16}, {}}),
    [](const auto&) { return "All"; });

absl::StatusOr<std::unique_ptr<Backend>> MakeNativeBackend() {
  return MakeOnednnBackend(/*native_bf16=*/true);
}
INSTANTIATE_TEST_SUITE_P(NativeBf16, ProgramConformanceTest,
                         ProgramCasesOf(&MakeNativeBackend), NameOfProgram);
INSTANTIATE_TEST_SUITE_P(NativeBf16, RandomProgramTest,
                         testing::Values(&MakeNativeBackend),
                         [](const auto&) { return "All"; });

// As on CPUs with AMX; on others with their vectors.
absl::StatusOr<std::unique_ptr<Backend>> MakeChannelsLastBackend() {
  return MakeOnednnBackend(/*native_bf16=*/true, /*bf16_channels_last=*/true);
}
INSTANTIATE_TEST_SUITE_P(Bf16ChannelsLast, ProgramConformanceTest,
                         ProgramCasesOf(&MakeChannelsLastBackend),
                         NameOfProgram);
INSTANTIATE_TEST_SUITE_P(Bf16ChannelsLast, RandomProgramTest,
                         testing::Values(&MakeChannelsLastBackend),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
