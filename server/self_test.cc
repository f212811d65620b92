#include "server/self_test.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "backends/core/status.h"
#include "backends/proof/families.h"
#include "backends/registry.h"
#include "server/machine/machine.h"
#include "server/proofs.h"
#include "server/scheduling/pin_thread.h"

namespace convgrad {
namespace {

constexpr DataType kColumns[] = {DataType::kF32, DataType::kBF16,
                                 DataType::kF16};

const char* CellOf(Remedy remedy) {
  switch (remedy) {
    case Remedy::kNone:
      return "ok";
    case Remedy::kByF32:
      return "f32";
    case Remedy::kRefused:
      break;
  }
  return "REFUSED";
}

void PrintTable(const std::vector<FamilyProof>& families, std::ostream& out) {
  std::vector<std::string> rows;
  std::map<std::string, std::map<DataType, Remedy>> cells;
  for (const FamilyProof& family : families) {
    if (cells.count(family.name) == 0) rows.push_back(family.name);
    cells[family.name][family.dtype] = family.remedy;
  }
  for (const std::string& row : rows) {
    out << absl::StrFormat("%-68s", row);
    for (DataType dtype : kColumns) {
      const auto cell = cells[row].find(dtype);
      out << absl::StrFormat(
          " %-8s", cell == cells[row].end() ? "-" : CellOf(cell->second));
    }
    out << "\n";
  }
}

bool Prove(const ProvenBackend& backend, int threads, std::ostream& out) {
  const ProofRun run = ProveFamilies(backend, threads, [] { return false; });
  out << absl::StrFormat("%-68s", backend.name());
  for (DataType dtype : kColumns) {
    out << absl::StrFormat(" %-8s", NameOf(dtype));
  }
  out << "\n";
  PrintTable(run.families, out);
  const ProofCounts counts = backend.counts();
  out << absl::StrFormat("%d ways: %d passed, %d failed, %d unmet; %.2f s\n",
                         counts.passed + counts.failed + counts.unmet,
                         counts.passed, counts.failed, counts.unmet,
                         absl::ToDoubleSeconds(run.elapsed));
  return counts.failed == 0;
}

}  // namespace

absl::StatusOr<bool> RunSelfTest(const Config& config, std::ostream& out) {
  RETURN_IF_ERROR(config.Validate());
  if (config.pin_workers) {
    PinThisThread(
        CoreSets(ReadMachine(), config.workers, config.threads_per_worker)[0]);
  }
  ASSIGN_OR_RETURN(std::vector<RegisteredBackend> backends,
                   SelectBackends(MakeBackends(), config.backends));
  Proofs proofs(&backends);
  bool all = true;
  for (const ProvenBackend* backend : proofs.backends()) {
    all = Prove(*backend, config.threads_per_worker, out) && all;
  }
  return all;
}

}  // namespace convgrad
