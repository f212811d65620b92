#include "tests/end_to_end/peers/cutting_proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace convgrad {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Resets a connection, so that bytes in flight are lost, as after a crash.
void Reset(int socket) {
  const linger now = {1, 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(socket);
}

bool WriteAll(int socket, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t written = send(socket, data, size, MSG_NOSIGNAL);
    if (written <= 0) return false;
    data += written;
    size -= written;
  }
  return true;
}

}  // namespace

bool CallBytes::Take(char byte) {
  if (left_ > 0) {
    --left_;
    return is_call_;
  }
  header_[header_bytes_++] = static_cast<uint8_t>(byte);
  if (header_bytes_ == header_.size()) {
    header_bytes_ = 0;
    left_ = header_[0] << 16 | header_[1] << 8 | header_[2];
    const uint8_t type = header_[3];
    constexpr uint8_t kData = 0, kHeaders = 1, kContinuation = 9;
    is_call_ = type == kData || type == kHeaders || type == kContinuation;
  }
  return false;
}

CuttingProxy::CuttingProxy(const std::string& server) {
  if (!absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &server_port_)) {
    std::abort();
  }
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, any, size) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, any, &size) != 0) {
    std::abort();
  }
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

CuttingProxy::~CuttingProxy() {
  stops_ = true;
  thread_.join();
  close(listener_);
  links_.insert(links_.end(), frozen_.begin(), frozen_.end());
  for (const Link& link : links_) {
    Reset(link.client);
    Reset(link.server);
  }
}

void CuttingProxy::CutAfter(Direction direction, int64_t bytes) {
  remaining_[static_cast<int>(direction)] = bytes;
}

void CuttingProxy::Freeze() {
  freezes_ = true;
  while (freezes_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void CuttingProxy::Accept() {
  const Link link = {.client = accept(listener_, nullptr, nullptr),
                     .server = socket(AF_INET, SOCK_STREAM, 0)};
  const sockaddr_in server = Loopback(server_port_);
  const int on = 1;
  setsockopt(link.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(link.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(link.server, reinterpret_cast<const sockaddr*>(&server),
              sizeof(server)) == 0) {
    links_.push_back(link);
  } else {
    Reset(link.client);
    Reset(link.server);
  }
}

bool CuttingProxy::Pass(Direction direction, Link* link) {
  const bool to_server = direction == Direction::kToServer;
  const int to = to_server ? link->server : link->client;
  char buffer[4096];
  const ssize_t size =
      recv(to_server ? link->client : link->server, buffer, sizeof(buffer), 0);
  if (size <= 0) return false;
  const auto i = static_cast<size_t>(direction);
  const int64_t allowed = remaining_[i];
  int64_t of_calls = 0;
  for (ssize_t passed = 0; passed < size; ++passed) {
    if (!link->calls[i].Take(buffer[passed]) || allowed < 0) continue;
    if (++of_calls <= allowed) continue;
    WriteAll(to, buffer, passed);
    // gRPC overlooks a reset that comes with the last bytes.
    shutdown(to, SHUT_WR);
    remaining_[i] = -1;
    ++cuts_;
    return false;
  }
  // Only an unarmed direction can be armed, so no other thread changes it.
  if (allowed >= 0) remaining_[i] -= of_calls;
  return WriteAll(to, buffer, size);
}

void CuttingProxy::Run() {
  constexpr int kTickMs = 20;
  while (!stops_) {
    if (freezes_) {
      frozen_.insert(frozen_.end(), links_.begin(), links_.end());
      links_.clear();
      freezes_ = false;
    }
    std::vector<pollfd> files = {{listener_, POLLIN, 0}};
    for (const Link& link : links_) {
      files.push_back({link.client, POLLIN, 0});
      files.push_back({link.server, POLLIN, 0});
    }
    if (poll(files.data(), files.size(), kTickMs) <= 0) continue;
    std::vector<Link> open;
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = links_[i];
      const bool goes_on =
          (files[1 + 2 * i].revents == 0 ||
           Pass(Direction::kToServer, &link)) &&
          (files[2 + 2 * i].revents == 0 || Pass(Direction::kToClient, &link));
      if (goes_on) {
        open.push_back(link);
      } else {
        Reset(link.client);
        Reset(link.server);
      }
    }
    links_ = std::move(open);
    if (files[0].revents != 0) Accept();
  }
}

}  // namespace convgrad
