#include "server/rpc/capabilities.h"

#include "proto/codec/codec.h"

namespace convgrad {

v1::GetCapabilitiesResponse DescribeServer(
    const ServerFacts& facts, absl::Span<const RegisteredBackend> backends) {
  v1::GetCapabilitiesResponse response;
  response.set_server_version(facts.version);
  response.set_workers(facts.workers);
  response.set_threads_per_worker(facts.threads_per_worker);
  if (!facts.regions_address.empty()) {
    v1::SharedMemory* shared = response.mutable_shared_memory();
    shared->set_address(facts.regions_address);
    shared->set_max_region_bytes(facts.max_region_bytes);
  }
  v1::Limits* limits = response.mutable_limits();
  limits->set_max_message_bytes(facts.max_message_bytes);
  limits->set_memory_budget_bytes(facts.memory_budget_bytes);
  limits->set_max_multiply_adds(facts.max_macs);
  limits->set_max_reference_multiply_adds(facts.max_reference_macs);
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

}  // namespace convgrad
