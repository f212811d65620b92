// Formats what a server's backends support as the README's table.
#pragma once

#include <string>

#include "convgrad/v1/capabilities.pb.h"

namespace convgrad {

// Returns a Markdown table with one column for each backend, without facts that
// differ from machine to machine.
std::string SupportTable(const v1::GetCapabilitiesResponse& response);

}  // namespace convgrad
