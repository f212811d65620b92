// `FirstExpiration` reads when a file's certificates expire.
#pragma once

#include <optional>
#include <string>

namespace convgrad {

// Returns when the first of the certificates in the PEM file `path` expires, in
// seconds since 1970, or nullopt if it can't be read or holds none.
std::optional<double> FirstExpiration(const std::string& path);

}  // namespace convgrad
