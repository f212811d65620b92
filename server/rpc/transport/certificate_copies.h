// `CertificateCopies` holds the copies of the TLS files that gRPC reads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "backends/core/mutex.h"
#include "proto/file_descriptor.h"
#include "server/rpc/transport/credentials.h"

namespace convgrad {

// `CertificateCopies` keeps copies of the last usable TLS files in memory. gRPC
// 1.51 doesn't check the files that it reads again: an empty key ends the
// process, and a key of another certificate makes it refuse all connections.
// Thread-safe. gRPC may read the copies at any time.
class CertificateCopies {
 public:
  // Empty paths mean no files.
  explicit CertificateCopies(TlsFiles files);

  // Copies the files if all of them are usable.
  // Errors: kInvalidArgument naming the flag of a file that isn't PEM, or of
  // another certificate's key; the copies then stay as they were.
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

  static absl::Status Write(std::string text, Copy* copy);

  const TlsFiles files_;
  mutable Mutex mutex_;
  Copy cert_ ABSL_GUARDED_BY(mutex_);
  // The last one that Refresh writes.
  Copy key_ ABSL_GUARDED_BY(mutex_);
  Copy client_ca_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
