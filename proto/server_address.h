// Checks addresses of servers, for the server and the C++ client.
#pragma once

#include "absl/strings/string_view.h"

namespace convgrad {

// Returns whether gRPC finds the target in another way than by asking for the
// addresses of a host: "unix:/run/convgrad.sock", "ipv4:10.0.0.1:7070".
bool HasOtherScheme(absl::string_view target);

// Returns whether the address is HOST:PORT without a scheme. HOST is a name of
// up to 253 bytes with labels of 1 to 63 letters, digits, '-' or '_', an IPv4
// address, or an IPv6 address in brackets. PORT is 1 to 65535 without leading
// zeros.
bool IsHostAndPort(absl::string_view address);

}  // namespace convgrad
