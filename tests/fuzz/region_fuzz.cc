// Fuzzes the running side socket with several connections at once.
//
// The input is a list of commands: a connection (a digit of 8), the action, and
// bytes to send.
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/file_descriptor.h"
#include "proto/region_handshake.h"
#include "server/memory/region_listener.h"
#include "tests/end_to_end/peers/temporary_folder.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

constexpr size_t kConnections = 8;
constexpr int64_t kCapacity = int64_t{1} << 20;
constexpr int64_t kMostRegions = kCapacity / 2;

// Exists until the process ends.
struct Side {
  TemporaryFolder folder;
  std::string path = absl::StrCat(folder.path(), "/socket");
  MemoryBudget budget{kCapacity, 0};
  RegionRegistry registry{&budget, kMostRegions};
  std::unique_ptr<RegionListener> listener;

  Side() {
    RegionListenerOptions options;
    options.path = path;
    options.owner = geteuid();
    options.max_connections = kConnections - 2;
    auto started = RegionListener::Start(options, &registry);
    Require(started.ok(), "the listener starts");
    listener = *std::move(started);
  }
};

class Peer {
 public:
  explicit Peer(const std::string& path)
      : file_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Require(connect(file_.get(), reinterpret_cast<sockaddr*>(&address),
                    sizeof(address)) == 0,
            "the listener accepts");
  }

  void Send(const uint8_t* bytes, size_t size) {
    sent_ += size;
    send(file_.get(), bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void HalfClose() { shutdown(file_.get(), SHUT_WR); }

  // A client that sent a whole request gets an answer, or its connection ends.
  void AwaitAnswer() {
    if (sent_ < sizeof(RegionRequest) || answered_) return;
    answered_ = true;
    pollfd polled = {file_.get(), POLLIN, 0};
    // The poll has no limit of its own, because libFuzzer has one. libFuzzer's
    // alarms interrupt it.
    while (poll(&polled, 1, -1) != 1) continue;
    RegionReply reply;
    const ssize_t got = recv(file_.get(), &reply, sizeof(reply), MSG_DONTWAIT);
    if (got <= 0) return;
    Require(got == sizeof(reply) && reply.magic == kRegionMagic,
            "a reply is whole");
    Require(reply.message[sizeof(reply.message) - 1] == 0, "its text ends");
  }

 private:
  const FileDescriptor file_;
  size_t sent_ = 0;
  bool answered_ = false;
};

void Try(const uint8_t* data, size_t size) {
  static Side& side = *new Side();
  std::array<std::unique_ptr<Peer>, kConnections> peers;
  for (size_t at = 0; at < size;) {
    const uint8_t command = data[at++];
    std::unique_ptr<Peer>& peer = peers[command % kConnections];
    if (!peer) peer = std::make_unique<Peer>(side.path);
    switch (command / kConnections % 4) {
      case 0: {
        const size_t bytes = std::min<size_t>(command / 32 * 4, size - at);
        peer->Send(data + at, bytes);
        at += bytes;
        break;
      }
      case 1: {
        // The request has a length from the input.
        RegionRequest request;
        const size_t bytes = std::min<size_t>(command / 32 + 1, size - at);
        std::memcpy(&request.byte_length, data + at, bytes);
        at += bytes;
        peer->Send(reinterpret_cast<const uint8_t*>(&request), sizeof(request));
        break;
      }
      case 2:
        peer->AwaitAnswer();
        break;
      default:
        if (command / 32 % 2 == 0) {
          peer->HalfClose();
        } else {
          peer.reset();
        }
    }
    Require(side.registry.region_bytes() <= kMostRegions,
            "regions stay within their limit");
  }
  for (auto& peer : peers) {
    if (peer) peer->AwaitAnswer();
    peer.reset();
  }
  // Connections that have ended must free everything before libFuzzer's time
  // limit.
  while (side.budget.used_bytes() > 0 || side.registry.regions() > 0) {
    sched_yield();
  }
}

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  convgrad::fuzz::Try(data, size);
  return 0;
}
