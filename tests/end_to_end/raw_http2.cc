#include "tests/end_to_end/raw_http2.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace convgrad {
namespace {

// Frame types and flags, RFC 9113, section 6.
constexpr uint8_t kData = 0x0;
constexpr uint8_t kHeaders = 0x1;
constexpr uint8_t kSettings = 0x4;
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint16_t kInitialWindowSize = 0x4;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

// As HPACK (RFC 7541) spells a field that no table has. Both are shorter than
// 127 bytes.
std::string Field(std::string_view name, std::string_view value) {
  std::string text(1, '\0');
  for (std::string_view part : {name, value}) {
    text += static_cast<char>(part.size());
    text += part;
  }
  return text;
}

}  // namespace

RawHttp2::RawHttp2(const std::string& address, uint32_t window)
    : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port =
      htons(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  if (connect(socket_, reinterpret_cast<sockaddr*>(&server), sizeof(server)) !=
          0 ||
      write(socket_, preface.data(), preface.size()) !=
          static_cast<ssize_t>(preface.size())) {
    std::abort();
  }
  SendFrame(kSettings, 0, 0,
            BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4));
}

RawHttp2::~RawHttp2() { close(socket_); }

uint32_t RawHttp2::Open(const std::string& method,
                        const std::map<std::string, std::string>& metadata) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  std::string fields = Field(":method", "POST") + Field(":scheme", "http") +
                       Field(":path", "/convgrad.v1.ConvGrad/" + method) +
                       Field(":authority", "localhost") +
                       Field("te", "trailers") +
                       Field("content-type", "application/grpc");
  for (const auto& [key, value] : metadata) fields += Field(key, value);
  SendFrame(kHeaders, kEndHeaders, stream, fields);
  return stream;
}

void RawHttp2::BeginMessage(uint32_t stream, uint32_t size) {
  Send(stream, BigEndian(size, 5));
}

void RawHttp2::Send(uint32_t stream, const std::string& bytes) {
  SendFrame(kData, 0, stream, bytes);
}

void RawHttp2::Finish(uint32_t stream) {
  SendFrame(kData, kEndStream, stream, "");
}

void RawHttp2::SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                         const std::string& payload) {
  const std::string frame = BigEndian(payload.size(), 3) + BigEndian(type, 1) +
                            BigEndian(flags, 1) + BigEndian(stream, 4) +
                            payload;
  if (send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(frame.size())) {
    std::abort();
  }
}

}  // namespace convgrad
