// `RouteRequest` chooses the backend of a convolution, for single calls and
// streams.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/core/convolution/conv_operation.h"
#include "proto/codec/codec.h"
#include "server/rpc/calls/call_services.h"

namespace convgrad {

// `ConvRequest` is a convolution that the server will compute. Value type.
struct ConvRequest {
  // The operation, without operands that it doesn't need.
  std::shared_ptr<const ConvOperation> operation;
  CallOptions options;
  Router::Choice route;
};

// Chooses the backend of `operation`. `wire_bytes` is the size of the payloads
// in messages. Thread-safe.
// Errors: those of Router::Route.
absl::StatusOr<ConvRequest> RouteRequest(const CallServices& services,
                                         ConvOperation operation,
                                         CallOptions options,
                                         int64_t wire_bytes);

}  // namespace convgrad
