// Networks in a session: programs that the server runs, their gradients, and
// updates of the parameters that the session keeps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backends/core/program/program.h"
#include "client/cpp/sessions/session.h"
#include "convgrad/v1/network.pb.h"

namespace convgrad {

// What a run is given for one of its program's inputs.
struct ProgramValue {
  std::string name;
  // Row-major (Layout::kNCX), and exactly ByteSize(descriptor) bytes, sent from
  // where they lie.
  TensorDescriptor descriptor = {};
  absl::Span<const std::byte> bytes = {};
  // If it isn't empty: the kept tensor to take instead of `bytes`.
  std::string kept = {};
};

// One run of a loaded program.
struct ProgramRun {
  std::string program;
  std::vector<ProgramValue> inputs;
  // Names of the values to return; empty: the program's outputs.
  std::vector<std::string> fetched = {};
  // Of activations, and of parameters as operands: kF32 or kBF16.
  DataType compute_dtype = DataType::kF32;
  // The name under which the session keeps what Backward needs; empty: it keeps
  // nothing.
  std::string tape = {};
  // Runs the backward, too, from the program's first output, a scalar.
  std::optional<v1::RunBackward> backward = std::nullopt;
  // Needs such a backward: steps the parameters, too, so that one call is a
  // whole step of training, all or nothing.
  std::optional<v1::UpdateParametersRequest> update = std::nullopt;
  // Whether values between steps that are computed together are neither rounded
  // nor written; without, every value can be fetched.
  bool fuse = true;
  // Computes values again in the backward instead of keeping them: less memory,
  // more time, the same bits.
  bool recompute = false;
  // Asks for the report's groups.
  bool report_groups = false;
  // True of a run that changes the session though it has no tape and no
  // backward: a batch_norm or dropout of its program is training.
  bool is_change = false;
  absl::Time deadline = absl::InfiniteFuture();
};

// A backward from a tape.
struct ProgramBackward {
  std::string tape;
  // By output, F32; those that are missing count as 0. At least one.
  std::vector<ProgramValue> output_gradients;
  // Inputs whose gradients come back.
  std::vector<std::string> input_gradients = {};
  // Leaves the session's gradients of parameters alone.
  bool leave_parameters = false;
  // Keeps the tape for another backward.
  bool retain = false;
  absl::Time deadline = absl::InfiniteFuture();
};

struct NamedResult {
  std::string name;
  TensorDescriptor descriptor;
  AlignedBuffer data;
};

struct ProgramReply {
  // The values that were asked for, then gradients of inputs, which are named
  // INPUT#gradient.
  std::vector<NamedResult> values;
  v1::RunReport report;
  // Of a run with an update.
  std::optional<v1::UpdateParametersResponse> update = std::nullopt;
};

// The calls of convgrad.v1.ConvGradNetworks in `session`. Errors and
// thread-safety are those of Session.
class Networks {
 public:
  // `session` outlives it.
  explicit Networks(Session* session) : session_(*session) {}

  // Keeps a program under a name; the same one again is no error.
  absl::Status Load(const std::string& name, const Program& program);
  // Drops programs, and tapes of runs.
  absl::Status Drop(absl::Span<const std::string> programs,
                    absl::Span<const std::string> tapes = {});
  absl::StatusOr<ProgramReply> Run(const ProgramRun& run);
  // Adds gradients of trainable parameters to the session's.
  absl::StatusOr<ProgramReply> Backward(const ProgramBackward& backward);
  // Steps parameters by the gradients that the session has of them.
  absl::StatusOr<v1::UpdateParametersResponse> Update(
      const v1::UpdateParametersRequest& update,
      absl::Time deadline = absl::InfiniteFuture());

 private:
  Session& session_;
};

}  // namespace convgrad
