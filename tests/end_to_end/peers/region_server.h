// `RegionServer` is a server that shares memory, on its own sockets.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/shared_region.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/temporary_folder.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {

class RegionServer {
 public:
  explicit RegionServer(Config config = TestConfig())
      : server_(WithRegions(std::move(config))) {}
  RegionServer(Config config, std::vector<RegisteredBackend> backends)
      : server_(WithRegions(std::move(config)), std::move(backends)) {}

  TestServer& test_server() { return server_; }
  Readings gauges() { return server_.server().gauges(); }
  std::string address() const {
    return absl::StrCat("unix:", folder_.path(), "/regions");
  }
  // Returns a new region. Aborts if the server gives none.
  std::unique_ptr<SharedRegion> NewRegion(int64_t bytes) {
    auto region = SharedRegion::Connect(address(), bytes);
    if (!region.ok()) {
      ADD_FAILURE() << region.status();
      std::abort();
    }
    return *std::move(region);
  }

 private:
  Config WithRegions(Config config) const {
    config.regions_listen = address();
    return config;
  }

  const TemporaryFolder folder_;
  TestServer server_;
};

// Returns the seed backward with all its tensors in `region`, which has at
// least 320 bytes: input, weight and grad_output at 0, 64 and 128; results
// grad_input and grad_weight at 192 and 256.
inline v1::ConvBackwardRequest SeedInRegion(const SharedRegion& region) {
  v1::ConvBackwardRequest request = SeedBackward();
  const auto take = [&](int64_t offset, int64_t bytes, auto* place) {
    const auto range = region.RangeOf(region.bytes().subspan(offset, bytes));
    place->set_region_id(range->region_id);
    place->set_byte_offset(offset);
    place->set_byte_length(bytes);
  };
  v1::ConvOperation* operation = request.mutable_operation();
  v1::Operands* operands = operation->mutable_operands();
  take(0, 36, operands->mutable_input()->mutable_region());
  take(64, 16, operands->mutable_weight()->mutable_region());
  take(128, 16, operands->mutable_grad_output()->mutable_region());
  for (int i = 0; i < request.payloads_size(); ++i) {
    const std::string& payload = request.payloads(i);
    payload.copy(reinterpret_cast<char*>(region.bytes().data()) + 64 * i,
                 payload.size());
  }
  request.clear_payloads();
  take(192, 36, operation->mutable_results(0)->mutable_region());
  take(256, 16, operation->mutable_results(1)->mutable_region());
  return request;
}

}  // namespace convgrad
