// These calls have no tensors and no session: GetCapabilities of
// convgrad.v1.ConvGrad, and Warmup of convgrad.v1.ConvGradAdmin.
#pragma once

#include "absl/status/status.h"
#include "convgrad/v1/capabilities.pb.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// Fills the response (see ControlCall). Thread-safe.
absl::Status GetCapabilities(const CallServices& services,
                             const CallPermit& permit,
                             const v1::GetCapabilitiesRequest& request,
                             v1::GetCapabilitiesResponse* response);

// `WarmupCall` answers when the warm-up thread has made the plans.
class WarmupCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status OnMessage(grpc::ByteBuffer* message) override;
};

}  // namespace convgrad
