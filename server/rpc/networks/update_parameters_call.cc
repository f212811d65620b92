// `UpdateParametersCall` runs one optimizer step over the session's parameters
// and their gradients.

#include "backends/core/status.h"
#include "server/rpc/networks/network_calls.h"

namespace convgrad {

absl::StatusOr<UnaryCall::Request> UpdateParametersCall::Decode() {
  ASSIGN_OR_RETURN(const auto head, Parse<v1::UpdateParametersRequest>());
  ASSIGN_OR_RETURN(const DecodedUpdate update, DecodeUpdate(head, ""));
  RETURN_IF_ERROR(
      session().KeepTrainerState(head.trainer_state(), "trainer_state"));
  ASSIGN_OR_RETURN(Request request, step_.Begin(update, *services().router));
  sample()->dtype = "f32";
  return request;
}

absl::StatusOr<grpc::ByteBuffer> UpdateParametersCall::Encode(
    const JobOutcome& /*outcome*/, std::vector<grpc::Slice> payloads) {
  return JoinMessage(step_.End(payloads[0]), {});
}

}  // namespace convgrad
