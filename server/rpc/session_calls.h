// The calls of convgrad.v1.ConvGradSessions that carry no tensors.
#pragma once

#include "absl/strings/string_view.h"
#include "server/rpc/calls/call.h"

namespace convgrad {

// Returns the call of `method` ("OpenSession"), null if it isn't one of these.
Call* MakeSessionControlCall(absl::string_view method,
                             const CallServices& services,
                             grpc::GenericCallbackServerContext* context);

}  // namespace convgrad
