// `BindToPath` binds UNIX sockets.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/file_descriptor.h"

namespace convgrad {

// Returns a non-blocking UNIX socket that is bound to `path`, or to an abstract
// name if `path` begins with a zero byte. Replaces a socket whose process has
// ended, but no file of another type. Thread-safe.
// Errors: kUnavailable with the system's reason.
absl::StatusOr<FileDescriptor> BindToPath(absl::string_view path);

// Removes the file at `path` if it is a socket. Thread-safe.
void RemoveSocket(const std::string& path);

}  // namespace convgrad
