// These functions read and check PEM files of certificates and private keys.
// gRPC doesn't check them when it receives them, so an unusable file would
// appear only as failing connections.
//
// Thread-safe: free functions without state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace convgrad {

// A file and the option that names it.
struct PemFile {
  absl::string_view option;
  std::string path;
};

// Returns the file's text, which is never "".
// Errors: kInvalidArgument naming the option if the file has no certificate or
// can't be read.
absl::StatusOr<std::string> ReadCertificates(const PemFile& file);

// Returns the text of the private key of the first certificate.
// Errors: kInvalidArgument naming the option if the file has no private key, an
// encrypted one, or another certificate's.
absl::StatusOr<std::string> ReadPrivateKey(const PemFile& file,
                                           absl::string_view certificate_option,
                                           const std::string& certificates);

}  // namespace convgrad
