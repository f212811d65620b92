// Files of certificates and private keys in PEM. gRPC doesn't look at them when
// it is given them: one that it can't use shows only in connections that fail.
// All functions are thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// A file, and the option that names it.
struct PemFile {
  absl::string_view option;
  std::string path;
};

// Returns the file's text. Requires: not "".
// Errors: kInvalidArgument naming the option of a file that has no certificate,
// or one that can't be read.
absl::StatusOr<std::string> ReadCertificates(const PemFile& file);

// Returns the text of the private key of the first certificate.
// Errors: kInvalidArgument naming the option of a file that has no private key,
// an encrypted one, or another certificate's.
absl::StatusOr<std::string> ReadPrivateKey(const PemFile& file,
                                           absl::string_view certificate_option,
                                           const std::string& certificates);

}  // namespace convgrad
