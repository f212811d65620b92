// Tests that a proven backend computes the same as the backend without proofs.
#include "backends/onednn/onednn_backend.h"
#include "backends/proof/proven_backend.h"
#include "backends/reference/reference_backend.h"
#include "tests/conformance/conformance_suite.h"

namespace convgrad::testing_support {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeProvenBackend() {
  return std::make_unique<ProvenBackend>(
      *MakeOnednnBackend(), *MakeReferenceBackend(), ProofListener());
}

INSTANTIATE_TEST_SUITE_P(Random, ConformanceTest,
                         RandomCasesOf(&MakeProvenBackend), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Proven, RefusalTest,
                         testing::Values(Refusals{
                             &MakeProvenBackend,
                             {Layout::kNCX, Layout::kNXC, Layout::kOIX,
                              Layout::kOXI, Layout::kXIO, Layout::kNDC1HWC0,
                              Layout::kFractalZ3D},
                             {}}),
                         [](const auto&) { return "All"; });

}  // namespace
}  // namespace convgrad::testing_support
