#include "backends/registry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/core/field_errors.h"
#include "backends/reference/reference_backend.h"
#ifdef CONVGRAD_WITH_CUDA
#include "backends/cuda/cuda_backend.h"
#endif
#ifdef CONVGRAD_WITH_ONEDNN
#include "backends/onednn/onednn_backend.h"
#endif

namespace convgrad {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Backend>> (*)();

struct Entry {
  absl::string_view name;
  Factory make;
  // Whether its results depend on the CPU.
  bool needs_proof;
};

constexpr Entry kEntries[] = {
#ifdef CONVGRAD_WITH_CUDA
    {"cuda", &MakeCudaBackend, false},
#endif
#ifdef CONVGRAD_WITH_ONEDNN
    {"onednn", &MakeOnednnBackend, true},
#endif
    {"reference", &MakeReferenceBackend, false},
};

bool NeedsProof(absl::string_view name) {
  return std::any_of(std::begin(kEntries), std::end(kEntries),
                     [&](const Entry& entry) {
                       return entry.name == name && entry.needs_proof;
                     });
}

}  // namespace

std::vector<RegisteredBackend> MakeBackends() {
  std::vector<RegisteredBackend> backends;
  for (const Entry& entry : kEntries) {
    backends.push_back({entry.name, entry.make()});
  }
  return backends;
}

absl::StatusOr<std::vector<RegisteredBackend>> SelectBackends(
    std::vector<RegisteredBackend> compiled, absl::string_view names) {
  if (names.empty()) return compiled;
  const std::vector<std::string> wanted = absl::StrSplit(names, ',');
  std::vector<std::string> known;
  std::vector<RegisteredBackend> selected;
  for (RegisteredBackend& entry : compiled) {
    known.emplace_back(entry.name);
    if (std::find(wanted.begin(), wanted.end(), entry.name) != wanted.end()) {
      selected.push_back(std::move(entry));
    }
  }
  if (selected.size() == wanted.size()) return selected;
  return OutOfRange("--backends", absl::StrCat("'", names, "'"),
                    absl::StrCat("some of ", absl::StrJoin(known, ",")));
}

std::vector<const ProvenBackend*> AddProofs(
    const ProofListener& listener, std::vector<RegisteredBackend>* backends) {
  std::vector<const ProvenBackend*> proven;
  for (RegisteredBackend& entry : *backends) {
    if (!entry.backend.ok() || !NeedsProof(entry.name)) continue;
    auto reference = MakeReferenceBackend();
    if (!reference.ok()) continue;
    auto backend = std::make_unique<ProvenBackend>(
        *std::move(entry.backend), *std::move(reference), listener);
    proven.push_back(backend.get());
    entry.backend = std::move(backend);
  }
  return proven;
}

}  // namespace convgrad
