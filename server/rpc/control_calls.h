// These calls have no tensors and no session: GetCapabilities of
// convgrad.v1.ConvGrad, and Warmup of convgrad.v1.ConvGradAdmin.
#pragma once

#include "absl/status/status.h"
#include "server/rpc/calls/message_call.h"

namespace convgrad {

// `GetCapabilitiesCall` handles GetCapabilities.
class GetCapabilitiesCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status OnMessage() override;
};

// `WarmupCall` answers when the warm-up thread has made the plans.
class WarmupCall final : public MessageCall {
 public:
  using MessageCall::MessageCall;

 private:
  absl::Status OnMessage() override;
};

}  // namespace convgrad
