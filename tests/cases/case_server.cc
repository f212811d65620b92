#include "tests/cases/case_server.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "server/machine.h"

namespace convgrad::testing_support {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// What gRPC can carry at most, less a head.
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

void Outcome::Add(Outcome other) {
  elements += other.elements;
  if (other.verdict <= verdict) return;
  verdict = other.verdict;
  message = std::move(other.message);
}

Outcome Failed(std::string message) {
  return {Verdict::kFailed, std::move(message), 0};
}

Outcome OutcomeOf(const ConvOperation& operation, const absl::Status& error) {
  const std::string what(error.message());
  if (absl::IsUnimplemented(error)) return {Verdict::kRefused, what, 0};
  if (absl::IsResourceExhausted(error)) return {Verdict::kSkipped, what, 0};
  return Failed(absl::StrCat(ToString(operation), "\n  ", error.ToString()));
}

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

absl::StatusOr<OperationReply> CaseServer::Run(const ConvOperation& operation,
                                               const PackOperand& pack) const {
  RETURN_IF_ERROR(Validate(operation));
  std::array<AlignedBuffer, kOperandCount> packed;
  OperationCall call;
  call.operation = operation;
  for (Operand which : kAllOperands) {
    const auto& tensor = operation.operand(which);
    if (!tensor) continue;
    const auto i = static_cast<size_t>(which);
    ASSIGN_OR_RETURN(packed[i], pack(which, *tensor));
    call.operands[i] = packed[i].bytes();
  }
  ASSIGN_OR_RETURN(OperationReply reply, client_->Run(call));
  if (reply.report.backend() == "reference") {
    return absl::InternalError("served by the reference backend, unasked");
  }
  return reply;
}

std::optional<Answer> CaseServer::Ask(const OperationSpec& spec,
                                      const PackOperand& pack,
                                      Outcome* outcome) const {
  ConvOperation operation = MakeOperation(spec);
  absl::StatusOr<OperationReply> reply = Run(operation, pack);
  if (!reply.ok()) {
    outcome->Add(OutcomeOf(operation, reply.status()));
    return std::nullopt;
  }
  return Answer{std::move(operation), *std::move(reply)};
}

}  // namespace convgrad::testing_support
