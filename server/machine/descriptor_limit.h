// `RaiseDescriptorLimit` raises the number of files and sockets that the
// process may have open.
#pragma once

#include <cstdint>

namespace convgrad {

// Raises the limit of open descriptors as far as the system allows without
// privileges, and returns it. A listener of gRPC 1.51 never accepts again after
// one accept has found no free descriptor
// (https://github.com/grpc/grpc/issues/20418). Affects the whole process.
int64_t RaiseDescriptorLimit();

}  // namespace convgrad
