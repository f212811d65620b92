// Finds the row of an RPC in the table of all RPCs.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/rpc/calls/method.h"

namespace convgrad {

// Returns a row for each RPC of convgrad.v1, by service.
absl::Span<const Method> AllMethods();

// Returns the row of a path ("/convgrad.v1.ConvGrad/ConvForward"). Its `name`
// is "unknown" if there is no such method: the call ends with kUnimplemented.
const Method& FindMethod(absl::string_view path);

}  // namespace convgrad
