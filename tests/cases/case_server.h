// A real server in this process, and how cases reach it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "server/server.h"
#include "tests/cases/call_path.h"
#include "tests/conformance/operation_spec.h"
#include "tests/end_to_end/temporary_folder.h"

namespace convgrad::testing_support {

// What became of one run: a record in one dtype, one set of layouts and one
// kind of data.
enum class Verdict { kPassed, kSkipped, kRefused, kFailed };

struct Outcome {
  Verdict verdict = Verdict::kPassed;
  std::string message;   // why, if it isn't kPassed
  int64_t elements = 0;  // compared

  // Counts `other` in; the worse verdict stays.
  void Add(Outcome other);
};

Outcome Failed(std::string message);

// Returns the tensor's bytes for one operand of an operation.
using PackOperand = std::function<absl::StatusOr<AlignedBuffer>(
    Operand, const TensorDescriptor&)>;

// An operation and what the server made of it.
struct Answer {
  ConvOperation operation;
  OperationReply reply;
};

// Thread-safe.
class CaseServer {
 public:
  struct Options {
    int workers = 1;
    int threads_per_worker = 0;  // 0: all cores
    bool large_messages = false;
    CallPath path = CallPath::kMessage;
  };

  static absl::StatusOr<std::unique_ptr<CaseServer>> Start(
      const Options& options);
  ~CaseServer();

  // Runs one operation.
  absl::StatusOr<OperationReply> Run(const ConvOperation& operation,
                                     const PackOperand& pack) const;

  // Asks for the results of `spec`. An error goes to `outcome`.
  std::optional<Answer> Ask(const OperationSpec& spec, const PackOperand& pack,
                            Outcome* outcome) const;

  const Config& config() const { return server_->config(); }

 private:
  CaseServer() = default;

  const TemporaryFolder folder_;  // of the side socket
  std::unique_ptr<Server> server_;
  std::unique_ptr<PathClient> client_;
};

// Returns how an error counts: UNIMPLEMENTED is a refusal, and a server that
// hasn't the memory skips; all else is a failure.
Outcome OutcomeOf(const ConvOperation& operation, const absl::Status& error);

}  // namespace convgrad::testing_support
