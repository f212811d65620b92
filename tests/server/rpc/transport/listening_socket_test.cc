#include "server/rpc/transport/listening_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Returns the name of a new connection to `address` at the accepting end.
std::string PeerOfConnectionTo(const std::string& address) {
  const auto listening = ListenAt(address);
  EXPECT_TRUE(listening.ok()) << listening.status();
  const FileDescriptor client(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(listening->port);
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&target),
                    sizeof(target)),
            0);
  for (const FileDescriptor& listener : listening->sockets) {
    const FileDescriptor server(accept(listener.get(), nullptr, nullptr));
    if (server.ok()) return PeerOf(server.get());
  }
  return "nobody";
}

TEST(ListeningSocket, NamesItsPeers) {
  for (const char* address : {"127.0.0.1:0", "localhost:0", "0.0.0.0:0"}) {
    const std::string peer = PeerOfConnectionTo(address);
    EXPECT_TRUE(absl::StartsWith(peer, "127.0.0.1:"))
        << address << ": " << peer;
  }
}

TEST(ListeningSocket, APortIsTakenOnce) {
  const auto first = ListenAt("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  const auto second = ListenAt(absl::StrCat("127.0.0.1:", first->port));
  EXPECT_EQ(second.status().message(), "bind: Address already in use");
}

// Returns a socket that listens at `path`.
FileDescriptor UnixSocketAt(const std::string& path) {
  FileDescriptor file(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  EXPECT_EQ(
      bind(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  EXPECT_EQ(listen(file.get(), 1), 0);
  return file;
}

TEST(ListeningSocket, ReplacesTheSocketOfAProcessThatEnded) {
  const std::string path = absl::StrCat(testing::TempDir(), "/ended");
  UnixSocketAt(path);
  const auto listening = ListenAt(absl::StrCat("unix:", path));
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(listening->path, path);
  EXPECT_EQ(listening->port, 0);
}

TEST(ListeningSocket, AnAbstractNameIsTakenOnce) {
  const std::string address =
      absl::StrCat("unix-abstract:convgrad-test-", getpid());
  const auto first = ListenAt(address);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(ListenAt(address).status().message(),
            "bind: Address already in use");
}

TEST(ListeningSocket, SaysWhyAPathIsNotFree) {
  const std::string folder = testing::TempDir();
  const std::string taken = absl::StrCat(folder, "/taken");
  const FileDescriptor other = UnixSocketAt(taken);
  const std::string file = absl::StrCat(folder, "/file");
  std::ofstream(file) << "text";
  for (const auto& [path, why] :
       {std::pair{taken, "bind: Address already in use"},
        std::pair{file, "bind: Address already in use"},
        std::pair{absl::StrCat(folder, "/missing/socket"),
                  "bind: No such file or directory"},
        std::pair{absl::StrCat(folder, std::string(100, 'x')),
                  "bind: File name too long"}}) {
    const auto listening = ListenAt(absl::StrCat("unix:", path));
    EXPECT_EQ(listening.status().message(), why);
  }
}

TEST(ListeningSocket, SaysWhatAnAddressLacks) {
  // No machine has the third address (RFC 5737).
  for (const char* address :
       {"nowhere", "no.such.host.invalid:1", "192.0.2.1:0", "127.0.0.1:x"}) {
    EXPECT_EQ(ListenAt(address).status().code(), absl::StatusCode::kUnavailable)
        << address;
  }
}

}  // namespace
}  // namespace convgrad
