// `CertificateCopies` holds the copies of the TLS files that gRPC reads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/file_descriptor.h"
#include "server/rpc/transport/credentials.h"

namespace convgrad {

// `CertificateCopies` keeps copies of the last usable TLS files in memory,
// because gRPC 1.51 uses whatever it reads: it ends the process if a key is
// empty, and refuses all connections while a key isn't that of its certificate.
// Thread-compatible, but the copies may be read at any time.
class CertificateCopies {
 public:
  // Empty paths mean no files.
  explicit CertificateCopies(TlsFiles files);

  // Copies the files if all of them are usable.
  // Errors: kInvalidArgument naming the flag of a file that isn't PEM, or of
  // another certificate's key; the copies then stay as they were. The same
  // error isn't returned twice in a row.
  absl::Status Refresh();

  // Returns the paths of the copies, which are valid as long as this. Requires
  // a successful Refresh().
  TlsFiles paths() const;

 private:
  // A file in memory; none as long as `text` is "".
  struct Copy {
    std::string text;
    FileDescriptor file;
  };

  absl::Status Load();
  static absl::Status Write(std::string text, Copy* copy);

  const TlsFiles files_;
  Copy cert_;
  Copy key_;
  Copy client_ca_;
  absl::Status error_;
};

}  // namespace convgrad
