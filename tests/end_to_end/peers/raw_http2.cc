#include "tests/end_to_end/peers/raw_http2.h"

#include <string_view>

namespace convgrad {
namespace {

// Frame types and flags (RFC 9113, section 6).
constexpr uint8_t kData = 0x0;
constexpr uint8_t kHeaders = 0x1;
constexpr uint8_t kResetStream = 0x3;
constexpr uint8_t kSettings = 0x4;
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint8_t kAcknowledgement = 0x1;
constexpr uint16_t kInitialWindowSize = 0x4;
constexpr uint32_t kCancel = 0x8;
constexpr size_t kMaxFrameBytes = 16384;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text += static_cast<char>(value >> (8 * i));
  }
  return text;
}

// Encodes a field that is in no table by HPACK (RFC 7541). Name and value are
// shorter than 127 bytes.
std::string Field(std::string_view name, std::string_view value) {
  std::string text(1, '\0');
  for (std::string_view part : {name, value}) {
    text += static_cast<char>(part.size());
    text += part;
  }
  return text;
}

}  // namespace

RawHttp2::RawHttp2(const std::string& address, uint32_t window,
                   const std::string& from)
    : connection_(PortOf(address), from) {
  connection_.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  SendFrame(kSettings, 0, 0,
            BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4));
}

void RawHttp2::AcknowledgeSettings() {
  SendFrame(kSettings, kAcknowledgement, 0, "");
}

uint32_t RawHttp2::Open(const std::string& path,
                        const std::map<std::string, std::string>& metadata) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  std::string fields = Field(":method", "POST") + Field(":scheme", "http") +
                       Field(":path", path) + Field(":authority", "localhost") +
                       Field("te", "trailers") +
                       Field("content-type", "application/grpc");
  for (const auto& [key, value] : metadata) fields += Field(key, value);
  SendFrame(kHeaders, kEndHeaders, stream, fields);
  return stream;
}

void RawHttp2::BeginMessage(uint32_t stream, uint32_t size) {
  Send(stream, BigEndian(size, 5));
}

void RawHttp2::SendMessage(uint32_t stream, const std::string& message) {
  BeginMessage(stream, message.size());
  Send(stream, message);
}

void RawHttp2::Send(uint32_t stream, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size(); at += kMaxFrameBytes) {
    SendFrame(kData, 0, stream, bytes.substr(at, kMaxFrameBytes));
  }
}

void RawHttp2::Finish(uint32_t stream) {
  SendFrame(kData, kEndStream, stream, "");
}

void RawHttp2::Reset(uint32_t stream) {
  SendFrame(kResetStream, 0, stream, BigEndian(kCancel, 4));
}

void RawHttp2::SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                         const std::string& payload) {
  connection_.Send(BigEndian(payload.size(), 3) + BigEndian(type, 1) +
                   BigEndian(flags, 1) + BigEndian(stream, 4) + payload);
}

}  // namespace convgrad
