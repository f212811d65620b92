// `Networks` has the server run programs in a session, compute their gradients
// and update the parameters that the session keeps.
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

// The value of one of a program's inputs.
struct ProgramValue {
  std::string name;
  // Layout: row-major (Layout::kNCX). `bytes` has exactly ByteSize(descriptor)
  // bytes, which gRPC sends without a copy.
  TensorDescriptor descriptor = {};
  absl::Span<const std::byte> bytes = {};
  // Name of the kept tensor to use instead of `bytes`; empty: none.
  std::string kept = {};
};

// One run of a loaded program.
struct ProgramRun {
  std::string program;
  std::vector<ProgramValue> inputs;
  // Names of the values to return; empty: the program's outputs.
  std::vector<std::string> fetched = {};
  // Dtype of activations, and of parameters as operands: kF32 or kBF16.
  DataType compute_dtype = DataType::kF32;
  // Name under which the session keeps the values that Backward needs; empty:
  // it keeps none.
  std::string tape = {};
  // Also runs the backward pass from the program's first output, a scalar.
  std::optional<v1::RunBackward> backward = std::nullopt;
  // Also steps the parameters, so that one call is a whole training step.
  // Atomic: either all of it takes effect or nothing. Requires `backward`.
  std::optional<v1::UpdateParametersRequest> update = std::nullopt;
  // If true, the server neither rounds nor writes values between fused steps.
  // If false, every value can be fetched.
  bool fuse = true;
  // Whether the server may compute 3x3 convolutions by Winograd's algorithm:
  // less time, other rounding errors. nullopt: as the server is configured.
  std::optional<bool> fast = std::nullopt;
  // Recomputes values in the backward pass instead of keeping them: less
  // memory, more time, the same bits.
  bool recompute = false;
  // Asks for the groups in the report.
  bool report_groups = false;
  // Reads the average NAME#ema of each parameter NAME where the session keeps
  // one. The run mustn't change the session.
  bool averaged = false;
  // Must be true for a run without tape and backward that changes the session
  // because a batch_norm or dropout of its program is training.
  bool is_change = false;
  // Only for a run that is a change; see PutOptions.
  std::string trainer_state = {};
  absl::Time deadline = absl::InfiniteFuture();
};

// One backward pass from a tape.
struct ProgramBackward {
  std::string tape;
  // Gradients of outputs, F32; at least one. Missing ones count as 0.
  std::vector<ProgramValue> output_gradients;
  // Inputs whose gradients the reply contains.
  std::vector<std::string> input_gradients = {};
  // If true, the session's parameter gradients don't change.
  bool leave_parameters = false;
  // If true, the session keeps the tape for another backward pass.
  bool retain = false;
  // See PutOptions.
  std::string trainer_state = {};
  absl::Time deadline = absl::InfiniteFuture();
};

// A value of a program, or a gradient.
struct NamedResult {
  std::string name;
  TensorDescriptor descriptor;
  AlignedBuffer data;
};

// The reply to a run or a backward pass.
struct ProgramReply {
  // The fetched values, then gradients of inputs, named INPUT#gradient.
  std::vector<NamedResult> values;
  v1::RunReport report;
  // Only for a run with an update.
  std::optional<v1::UpdateParametersResponse> update = std::nullopt;
};

// Makes the calls of convgrad.v1.ConvGradNetworks in `session`. Errors and
// thread-safety are those of Session.
class Networks {
 public:
  // `session` must outlive this object.
  explicit Networks(Session* session) : session_(*session) {}

  // Keeps a program under a name. Loading the same program again is no error.
  absl::Status Load(const std::string& name, const Program& program);
  // Drops programs and the tapes of runs.
  absl::Status Drop(absl::Span<const std::string> programs,
                    absl::Span<const std::string> tapes = {});
  // Runs a program. It is a change if it has a tape, a backward pass or
  // `is_change`, a read otherwise.
  absl::StatusOr<ProgramReply> Run(const ProgramRun& run);
  // Adds the gradients of trainable parameters to the session's gradients.
  absl::StatusOr<ProgramReply> Backward(const ProgramBackward& backward);
  // Steps parameters by the session's gradients.
  absl::StatusOr<v1::UpdateParametersResponse> Update(
      const v1::UpdateParametersRequest& update,
      absl::Time deadline = absl::InfiniteFuture());

 private:
  Session& session_;
};

}  // namespace convgrad
