#include "server/machine/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace convgrad {
namespace {

FileDescriptor NewSocket() {
  return FileDescriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool IsSocket(const char* path) {
  struct stat status = {};
  return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode);
}

// Returns whether no process listens on the socket at `address`. The kernel
// refuses a connection to a file of any other type as well.
bool IsAbandoned(const sockaddr_un& address) {
  const FileDescriptor probe = NewSocket();
  return IsSocket(address.sun_path) &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
                 sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

absl::StatusOr<FileDescriptor> BindToPath(absl::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::UnavailableError(std::strerror(ENAMETOOLONG));
  }
  path.copy(address.sun_path, path.size());
  if (IsAbandoned(address)) unlink(address.sun_path);
  FileDescriptor socket = NewSocket();
  // An abstract name has no zero byte at its end.
  const size_t end = address.sun_path[0] == '\0' ? 0 : 1;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                           path.size() + end);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) !=
      0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return socket;
}

void RemoveSocket(const std::string& path) {
  if (IsSocket(path.c_str())) unlink(path.c_str());
}

}  // namespace convgrad
