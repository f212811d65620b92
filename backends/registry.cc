#include "backends/registry.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
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

constexpr std::pair<absl::string_view, Factory> kFactories[] = {
#ifdef CONVGRAD_WITH_CUDA
    {"cuda", &MakeCudaBackend},
#endif
#ifdef CONVGRAD_WITH_ONEDNN
    {"onednn", &MakeOnednnBackend},
#endif
    {"reference", &MakeReferenceBackend},
};

}  // namespace

std::vector<RegisteredBackend> MakeBackends() {
  std::vector<RegisteredBackend> backends;
  for (const auto& [name, make] : kFactories)
    backends.push_back({name, make()});
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
  return InvalidField(Reason::kOutOfRange, "--backends",
                      absl::StrCat("'", names, "'"),
                      absl::StrCat("some of ", absl::StrJoin(known, ",")));
}

}  // namespace convgrad
