// `MakeListedServices` makes the services that reflection lists. These services
// handle no calls.
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace convgrad {

// Returns one service for each service of convgrad.v1. The generic service
// handles their calls, because gRPC's stubs would read and parse a message of
// any size before the gate checks its sender. Thread-safe.
std::vector<std::unique_ptr<grpc::Service>> MakeListedServices();

}  // namespace convgrad
