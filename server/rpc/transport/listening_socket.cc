#include "server/rpc/transport/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/machine/unix_socket.h"

namespace convgrad {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns errno as a status; kNotFound if this machine has no such address.
absl::Status SystemError(absl::string_view what) {
  const bool is_missing = errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL;
  return absl::Status(
      is_missing ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable,
      absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<Addresses> Resolve(const std::string& host,
                                  const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error == 0) return Addresses(found, &freeaddrinfo);
  return absl::UnavailableError(gai_strerror(error));
}

void Set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

void SetPort(int port, sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

absl::Status Add(const addrinfo& address, ListeningSockets* result) {
  FileDescriptor file(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!file.ok()) return SystemError("socket");
  Set(file.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Accepted sockets inherit the option.
  Set(file.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (address.ai_family == AF_INET6) {
    Set(file.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (result->port != 0) SetPort(result->port, address.ai_addr);
  if (bind(file.get(), address.ai_addr, address.ai_addrlen) != 0) {
    return SystemError("bind");
  }
  if (listen(file.get(), SOMAXCONN) != 0) return SystemError("listen");
  result->port = PortOf(file.get());
  result->sockets.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<ListeningSockets> ListenAtPath(std::string path) {
  absl::StatusOr<FileDescriptor> socket = BindToPath(path);
  if (!socket.ok()) {
    return absl::UnavailableError(
        absl::StrCat("bind: ", socket.status().message()));
  }
  if (listen(socket->get(), SOMAXCONN) != 0) return SystemError("listen");
  ListeningSockets result;
  result.sockets.push_back(*std::move(socket));
  result.path = std::move(path);
  return result;
}

absl::StatusOr<ListeningSockets> ListenAt(const std::string& host,
                                          const std::string& port) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port));
  ListeningSockets result;
  absl::Status missing;
  for (const addrinfo* it = addresses.get(); it != nullptr; it = it->ai_next) {
    const absl::Status added = Add(*it, &result);
    // localhost resolves to addresses of both families even if the machine
    // supports only one.
    if (absl::IsNotFound(added)) {
      missing = added;
    } else if (!added.ok()) {
      return added;
    }
  }
  if (result.sockets.empty()) {
    return absl::UnavailableError(missing.message());
  }
  return result;
}

}  // namespace

absl::StatusOr<ListeningSockets> ListenAt(const std::string& address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix-abstract:")) {
    return ListenAtPath(absl::StrCat(absl::string_view("\0", 1), path));
  }
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
    return ListenAtPath(std::string(path));
  }
  const size_t colon = address.rfind(':');
  if (colon == address.npos) return absl::UnavailableError("no port");
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string port = address.substr(colon + 1);
  if (host == "0.0.0.0") {
    // 0.0.0.0 means all addresses of both families, as in gRPC. A machine
    // without IPv6 listens at IPv4 only.
    auto both = ListenAt("::", port);
    if (both.ok()) return both;
  }
  return ListenAt(std::string(host), port);
}

std::string PeerOf(int socket) {
  sockaddr_storage address;
  socklen_t size = sizeof(address);
  auto* const peer = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(socket, peer, &size) != 0) return "?";
  if (peer->sa_family == AF_UNIX) return "unix";
  if (getnameinfo(peer, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  absl::string_view name = host;
  absl::ConsumePrefix(&name, "::ffff:");  // IPv4 at a socket of both families.
  return absl::StrContains(name, ':') ? absl::StrCat("[", name, "]:", port)
                                      : absl::StrCat(name, ":", port);
}

}  // namespace convgrad
