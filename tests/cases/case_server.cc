#include "tests/cases/case_server.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/machine/machine.h"

namespace convgrad::testing_support {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// The largest message of gRPC, minus a head.
constexpr int64_t kLargestMessage =
    std::numeric_limits<int32_t>::max() - 2 * kMiB;

Config MakeConfig(const CaseServer::Options& options,
                  const std::string& regions) {
  Config config;
  config.listen = "127.0.0.1:0";
  config.metrics_listen = "";
  config.workers = options.workers;
  config.threads_per_worker = options.threads_per_worker;
  config.pin_workers = false;
  config.log_level = "warning";
  if (options.path == CallPath::kRegion) config.regions_listen = regions;
  const int64_t memory = ReadMachine().memory_bytes;
  if (options.large_messages && memory >= 16 * kGiB) {
    config.memory_budget_bytes = memory / 4 * 3;
    config.max_message_bytes = kLargestMessage;
  }
  return config;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CaseServer>> CaseServer::Start(
    const Options& options) {
  auto made = std::unique_ptr<CaseServer>(new CaseServer);
  const std::string regions =
      absl::StrCat("unix:", made->folder_.path(), "/regions");
  ASSIGN_OR_RETURN(made->server_, Server::Start(MakeConfig(options, regions)));
  ASSIGN_OR_RETURN(made->client_,
                   PathClient::Connect(made->server_->addresses()[0], regions,
                                       options.path));
  return made;
}

CaseServer::~CaseServer() = default;

absl::StatusOr<std::vector<AlignedBuffer>> CaseServer::Compute(
    const ConvOperation& operation, const PackedOperands& operands) const {
  OperationCall call;
  call.operation = operation;
  for (size_t i = 0; i < kOperandCount; ++i) {
    if (operation.operands[i]) call.operands[i] = operands[i].bytes();
  }
  ASSIGN_OR_RETURN(OperationReply reply, client_->Run(call));
  if (reply.report.backend() == "reference") {
    return absl::InternalError("served by the reference backend, unasked");
  }
  std::vector<AlignedBuffer> results;
  for (OperationResult& result : reply.results) {
    results.push_back(std::move(result.data));
  }
  return results;
}

}  // namespace convgrad::testing_support
