#include "server/rpc/convolutions/conv_request.h"

#include <utility>

#include "backends/core/status.h"

namespace convgrad {

absl::StatusOr<ConvRequest> RouteRequest(const CallServices& services,
                                         ConvOperation operation,
                                         CallOptions options,
                                         int64_t wire_bytes) {
  DropUnneeded(&operation);
  ConvRequest request;
  ASSIGN_OR_RETURN(
      request.route,
      services.router->Route(operation, {options.backend, wire_bytes}));
  request.operation =
      std::make_shared<const ConvOperation>(std::move(operation));
  request.options = std::move(options);
  return request;
}

}  // namespace convgrad
