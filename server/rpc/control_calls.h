// The calls without tensors that belong to no session: GetCapabilities of
// convgrad.v1.ConvGrad, and Warmup of convgrad.v1.ConvGradAdmin.
#pragma once

#include "server/rpc/calls/call.h"

namespace convgrad {

Call* MakeCapabilitiesCall(const CallServices& services,
                           grpc::GenericCallbackServerContext* context);
Call* MakeWarmupCall(const CallServices& services,
                     grpc::GenericCallbackServerContext* context);

}  // namespace convgrad
