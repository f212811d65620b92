// `CaseServer` is a real server in this process that runs cases.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/server.h"
#include "tests/cases/call_path.h"
#include "tests/cases/case_target.h"
#include "tests/end_to_end/peers/temporary_folder.h"

namespace convgrad::testing_support {

// `CaseServer` is thread-safe.
class CaseServer final : public CaseTarget {
 public:
  struct Options {
    int workers = 1;
    int threads_per_worker = 0;  // 0: all cores
    bool large_messages = false;
    CallPath path = CallPath::kMessage;
  };

  static absl::StatusOr<std::unique_ptr<CaseServer>> Start(
      const Options& options);
  ~CaseServer() override;

  const Config& config() const { return server_->config(); }

 private:
  CaseServer() = default;
  absl::StatusOr<std::vector<AlignedBuffer>> Compute(
      const ConvOperation& operation,
      const PackedOperands& operands) const override;

  const TemporaryFolder folder_;  // For the side socket.
  std::unique_ptr<Server> server_;
  std::unique_ptr<PathClient> client_;
};

}  // namespace convgrad::testing_support
