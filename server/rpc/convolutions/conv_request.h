// What ConvForward, ConvBackward and their streams do alike with what a client
// asks for.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "proto/codec/codec.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// A convolution that the server will compute. Value type.
struct ConvRequest {
  // Without operands that it doesn't need.
  std::shared_ptr<const ConvOperation> operation;
  CallOptions options;
  Router::Choice route;
};

// Chooses who computes `operation`, and tells `*sample`. `wire_bytes` are those
// of payloads in messages.
// Errors: those of Router::Route.
absl::StatusOr<ConvRequest> RouteRequest(const CallServices& services,
                                         ConvOperation operation,
                                         CallOptions options,
                                         int64_t wire_bytes, OpSample* sample);

}  // namespace convgrad
