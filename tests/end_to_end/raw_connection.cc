#include "tests/end_to_end/raw_connection.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace convgrad {
namespace {

constexpr char kData = 0;
constexpr char kHeaders = 1;
constexpr char kSettings = 4;
constexpr char kEndStream = 1;
constexpr char kEndHeaders = 4;
constexpr char kAcknowledgement = 1;

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text.push_back(static_cast<char>(value >> (8 * i)));
  }
  return text;
}

std::string Frame(char type, char flags, int stream,
                  const std::string& payload) {
  return absl::StrCat(BigEndian(payload.size(), 3), std::string(1, type),
                      std::string(1, flags), BigEndian(stream, 4), payload);
}

// A literal that isn't indexed; both parts are shorter than 127 bytes.
std::string HeaderField(const std::string& name, const std::string& value) {
  return absl::StrCat(std::string(1, '\0'), BigEndian(name.size(), 1), name,
                      BigEndian(value.size(), 1), value);
}

}  // namespace

RawConnection::RawConnection(int port)
    : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
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

void RawConnection::Send(const std::string& bytes) {
  send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

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

std::string Http2Preface() {
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                      Frame(kSettings, 0, 0, ""));
}

std::string Http2Acknowledgement() {
  return Frame(kSettings, kAcknowledgement, 0, "");
}

std::string Http2Header(int stream, const std::string& path) {
  return Frame(
      kHeaders, kEndHeaders, stream,
      absl::StrCat(HeaderField(":method", "POST"),
                   HeaderField(":scheme", "http"), HeaderField(":path", path),
                   HeaderField(":authority", "localhost"),
                   HeaderField("te", "trailers"),
                   HeaderField("content-type", "application/grpc")));
}

std::string Http2Call(int stream, const std::string& path,
                      const std::string& message) {
  const std::string prefix =
      absl::StrCat(std::string(1, '\0'), BigEndian(message.size(), 4));
  return absl::StrCat(
      Http2Header(stream, path),
      Frame(kData, kEndStream, stream, absl::StrCat(prefix, message)));
}

}  // namespace convgrad
