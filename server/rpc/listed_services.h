// `MakeListedServices` makes the services that reflection lists. They handle no
// call themselves.
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace convgrad {

// Returns a service for each of convgrad.v1's. The generic service handles
// their calls, because gRPC's stubs would read and parse a message of any size
// before the gate checks its sender.
std::vector<std::unique_ptr<grpc::Service>> MakeListedServices();

}  // namespace convgrad
