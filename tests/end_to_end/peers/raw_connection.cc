#include "tests/end_to_end/peers/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace convgrad {
RawConnection::RawConnection(int port, const std::string& from)
    : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, from.c_str(), &address.sin_addr);
  bind(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(std::exchange(file_, -1));
    return;
  }
  const timeval patience = {10, 0};
  setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

RawConnection::RawConnection(RawConnection&& other) noexcept
    : file_(std::exchange(other.file_, -1)) {}

RawConnection::~RawConnection() {
  if (file_ >= 0) close(file_);
}

size_t RawConnection::Send(const std::string& bytes) {
  const ssize_t sent = send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return static_cast<size_t>(std::max<ssize_t>(sent, 0));
}

void RawConnection::EndSending() { shutdown(file_, SHUT_WR); }

std::string RawConnection::Read(size_t limit) {
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t size =
        recv(file_, buffer, std::min(sizeof(buffer), limit - text.size()), 0);
    if (size <= 0) break;
    text.append(buffer, size);
  }
  return text;
}

bool RawConnection::AwaitEnd() {
  char buffer[4096];
  ssize_t size;
  while ((size = recv(file_, buffer, sizeof(buffer), 0)) > 0) {
  }
  return size == 0 || errno == ECONNRESET;
}

int PortOf(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

}  // namespace convgrad
