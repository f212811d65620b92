// Fuzzes the running metrics endpoint with HTTP. The library that parses it
// isn't instrumented, so coverage says little.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "proto/file_descriptor.h"
#include "server/telemetry/metrics_endpoint.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

std::unique_ptr<MetricsEndpoint> MustStart() {
  MetricsOptions options;
  options.listen = "127.0.0.1:0";
  options.backends = {"onednn"};
  options.operations = {"forward"};
  auto started = MetricsEndpoint::Start(options);
  Require(started.ok(), "the endpoint starts");
  return *std::move(started);
}

// Sends exactly `bytes` and returns the answer.
std::string Exchange(int port, absl::string_view bytes) {
  const FileDescriptor file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Require(connect(file.get(), reinterpret_cast<sockaddr*>(&address),
                  sizeof(address)) == 0,
          "the endpoint accepts");
  send(file.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(file.get(), SHUT_WR);
  std::string answer;
  char buffer[4096];
  ssize_t got;
  // libFuzzer's alarms interrupt recv.
  while ((got = recv(file.get(), buffer, sizeof(buffer), 0)) > 0 ||
         (got < 0 && errno == EINTR)) {
    if (got > 0) answer.append(buffer, static_cast<size_t>(got));
  }
  Require(got == 0 || errno == ECONNRESET, "a connection ends");
  return answer;
}

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using convgrad::fuzz::Exchange;
  static convgrad::MetricsEndpoint& endpoint =
      *convgrad::fuzz::MustStart().release();
  static int count = 0;
  Exchange(endpoint.port(), {reinterpret_cast<const char*>(data), size});
  // A scrape takes longer than all other checks here.
  if (++count % 16 != 0) return 0;
  convgrad::fuzz::Require(
      absl::StartsWith(
          Exchange(endpoint.port(), "GET /metrics HTTP/1.0\r\n\r\n"),
          "HTTP/1.1 200 OK\r\n"),
      "the endpoint goes on");
  return 0;
}
