// The services that reflection lists, without a handler of their own.
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace convgrad {

// Returns a service for each of convgrad.v1's, all of whose calls are left to
// the generic service: stubs of gRPC would read and parse a message of any size
// before anybody is asked who sent it.
std::vector<std::unique_ptr<grpc::Service>> MakeListedServices();

}  // namespace convgrad
