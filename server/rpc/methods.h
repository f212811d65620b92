// `FindMethod` finds the row of an RPC in the table of all RPCs.
//
// Thread-safe: free functions without state.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/rpc/calls/method.h"
#include "server/telemetry/observer.h"

namespace convgrad {

// Returns one row for each RPC of convgrad.v1, ordered by service.
absl::Span<const Method> AllMethods();

// Returns all methods in the form that metrics use.
std::vector<MeasuredMethod> MeasuredMethods();

// Returns the row of a path ("/convgrad.v1.ConvGrad/ConvForward"). If there is
// no such method, the row's `name` is "unknown" and its call ends with
// kUnimplemented.
const Method& FindMethod(absl::string_view path);

}  // namespace convgrad
