// Gives host names addresses in a test program, in place of DNS.
#pragma once

#include <string>
#include <vector>

namespace convgrad {

// Not thread-safe. Call it before anything resolves names.
void SetAddresses(const std::string& host,
                  const std::vector<std::string>& addresses);

}  // namespace convgrad
