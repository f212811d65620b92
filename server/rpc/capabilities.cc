#include "server/rpc/capabilities.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

using Facts = std::map<std::string, std::string>;

// The longest text of a fact, so that a snapshot may have it.
constexpr size_t kMostFactBytes = 900;

std::string Find(const Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "" : found->second;
}

}  // namespace

v1::GetCapabilitiesResponse DescribeServer(
    const Config& config, const std::string& cpu_model,
    absl::Span<const RegisteredBackend> backends) {
  v1::GetCapabilitiesResponse response;
  response.set_workers(config.workers);
  response.set_threads_per_worker(config.threads_per_worker);
  response.set_cpu_model(cpu_model);
  response.set_fast_convolutions(config.fast_convolutions);
  if (!config.regions_listen.empty()) {
    v1::SharedMemory* shared = response.mutable_shared_memory();
    shared->set_address(config.regions_listen);
    shared->set_max_region_bytes(config.max_region_bytes);
  }
  v1::Limits* limits = response.mutable_limits();
  limits->set_max_message_bytes(config.max_message_bytes);
  limits->set_max_multiply_adds(config.max_macs);
  limits->set_max_reference_multiply_adds(config.max_reference_macs);
  for (const RegisteredBackend& entry : backends) {
    v1::BackendCapabilities* message = response.add_backends();
    message->set_name(std::string(entry.name));
    message->set_available(entry.backend.ok());
    if (!entry.backend.ok()) {
      message->set_unavailable_reason(
          std::string(entry.backend.status().message()));
      continue;
    }
    const BackendCapabilities can = (*entry.backend)->capabilities();
    message->set_version(can.version);
    message->set_description(can.description);
    message->set_max_spatial_axes(can.max_spatial_rank);
    for (DataType dtype : can.dtypes) {
      message->add_dtypes(EncodeDataType(dtype));
    }
    for (DataType dtype : can.native_dtypes) {
      message->add_native_dtypes(EncodeDataType(dtype));
    }
    for (Result result : can.results) {
      message->add_results(EncodeResult(result));
    }
    for (const std::string& feature : can.cpu_features) {
      message->add_cpu_features(feature);
    }
    for (Layout layout : can.layouts) {
      message->add_layouts(EncodeLayout(layout));
    }
    for (const std::string& gap : can.gaps) message->add_gaps(gap);
    for (const std::string& failed : can.failed_proofs) {
      message->add_failed_proofs(failed);
    }
  }
  return response;
}

Facts FactsOf(const v1::GetCapabilitiesResponse& server) {
  Facts facts = {
      {"server", server.server_version()},
      {"threads_per_worker", absl::StrCat(server.threads_per_worker())},
      {"fast_convolutions", server.fast_convolutions() ? "true" : "false"},
      {"cpu", server.cpu_model()}};
  for (const v1::BackendCapabilities& backend : server.backends()) {
    // Plain loops have the same bits everywhere.
    if (!backend.available() || backend.name() == "reference") continue;
    std::vector<std::string> features(backend.cpu_features().begin(),
                                      backend.cpu_features().end());
    std::sort(features.begin(), features.end());
    features.insert(features.begin(),
                    {backend.version(), backend.description()});
    facts[backend.name()] = absl::StrJoin(features, " ");
  }
  for (auto& [name, text] : facts) {
    text.resize(std::min(text.size(), kMostFactBytes));
    for (char& c : text) {
      if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
    }
  }
  return facts;
}

void AddDifferences(
    const Facts& there, const Facts& here,
    google::protobuf::RepeatedPtrField<v1::ServerDifference>* differences) {
  if (there.empty()) return;
  std::set<std::string> names;
  for (const Facts* facts : {&there, &here}) {
    for (const auto& [name, fact] : *facts) names.insert(name);
  }
  for (const std::string& name : names) {
    const std::string found = Find(there, name);
    const std::string own = Find(here, name);
    if (found == own) continue;
    v1::ServerDifference* difference = differences->Add();
    difference->set_fact(name);
    difference->set_there(found);
    difference->set_here(own);
  }
}

}  // namespace convgrad
