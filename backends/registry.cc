#include "backends/registry.h"

#include <array>
#include <utility>

#include "backends/reference/reference_backend.h"
#ifdef CONVGRAD_WITH_ONEDNN
#include "backends/onednn/onednn_backend.h"
#endif

namespace convgrad {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Backend>> (*)();

constexpr std::pair<absl::string_view, Factory> kFactories[] = {
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

}  // namespace convgrad
