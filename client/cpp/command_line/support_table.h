// What a server's backends do, as the table that the README shows.
#pragma once

#include <string>

#include "convgrad/v1/capabilities.pb.h"

namespace convgrad {

// Returns a Markdown table with one column for each backend, without what
// differs from machine to machine.
std::string SupportTable(const v1::GetCapabilitiesResponse& response);

}  // namespace convgrad
