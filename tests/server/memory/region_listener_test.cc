// Tests the side socket with correct and incorrect clients.
#include "server/memory/region_listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "proto/region_handshake.h"
#include "tests/end_to_end/peers/temporary_folder.h"

namespace convgrad {
namespace {

constexpr int64_t kPage = 4096;

// A connection to the side socket.
class Peer {
 public:
  explicit Peer(const std::string& path)
      : file_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected_ = connect(file_.get(), reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0;
  }

  bool connected() const { return connected_; }
  // The memory of the region, if the last reply had one.
  const FileDescriptor& memory() const { return memory_; }

  void Send(const void* bytes, size_t size) {
    send(file_.get(), bytes, size, MSG_NOSIGNAL);
  }
  // Returns the reply; nullopt if the server closed the connection.
  std::optional<RegionReply> Receive() {
    RegionReply reply;
    iovec bytes = {&reply, sizeof(reply)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(file_.get(), &message, MSG_WAITALL) !=
        static_cast<ssize_t>(sizeof(reply))) {
      return std::nullopt;
    }
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int number;
      std::memcpy(&number, CMSG_DATA(header), sizeof(number));
      memory_ = FileDescriptor(number);
    }
    return reply;
  }
  std::optional<RegionReply> Ask(int64_t byte_length) {
    const RegionRequest request{kRegionMagic, byte_length};
    Send(&request, sizeof(request));
    return Receive();
  }
  // Waits until the server closes the connection.
  bool AwaitClosed() {
    char byte;
    return recv(file_.get(), &byte, 1, 0) <= 0;
  }

 private:
  const FileDescriptor file_;
  bool connected_ = false;
  FileDescriptor memory_;
};

absl::StatusCode CodeOf(const std::optional<RegionReply>& reply) {
  return reply ? static_cast<absl::StatusCode>(reply->status)
               : absl::StatusCode::kUnknown;
}

class RegionListenerTest : public testing::Test {
 protected:
  RegionListenerTest() {
    options_.path = absl::StrCat(folder_.path(), "/socket");
    options_.owner = geteuid();
  }
  ~RegionListenerTest() override { listener_.reset(); }

  void Start() {
    auto started = RegionListener::Start(options_, &registry_);
    ASSERT_TRUE(started.ok()) << started.status();
    listener_ = *std::move(started);
  }
  Peer Connect() const { return Peer(options_.path); }
  void AwaitRegions(int64_t count) {
    while (registry_.regions() != count) std::this_thread::yield();
  }
  // Waits, because a region's id is removed before its bytes are freed.
  void AwaitNothingHeld() {
    AwaitRegions(0);
    while (budget_.used_bytes() != 0) std::this_thread::yield();
  }

  const TemporaryFolder folder_;
  RegionListenerOptions options_;
  MemoryBudget budget_{16 * kPage, 0};
  RegionRegistry registry_{&budget_, 8 * kPage};
  std::unique_ptr<RegionListener> listener_;
};

TEST_F(RegionListenerTest, GivesARegionForAsLongAsTheConnectionLasts) {
  Start();
  {
    Peer peer = Connect();
    const auto reply = peer.Ask(2 * kPage);
    ASSERT_EQ(CodeOf(reply), absl::StatusCode::kOk);
    const std::string id(reply->region_id, sizeof(reply->region_id));
    ASSERT_NE(registry_.Find(id), nullptr);
    struct stat memory;
    ASSERT_EQ(fstat(peer.memory().get(), &memory), 0);
    EXPECT_EQ(memory.st_size, 2 * kPage);
    registry_.Find(id)->data()[5] = std::byte{6};
    char byte;
    ASSERT_EQ(pread(peer.memory().get(), &byte, 1, 5), 1);
    EXPECT_EQ(byte, 6);
  }
  AwaitNothingHeld();
}

TEST_F(RegionListenerTest, RefusesAnotherMagicNumber) {
  Start();
  Peer peer = Connect();
  const RegionRequest request{kRegionMagic + 1, kPage};
  peer.Send(&request, sizeof(request));
  const auto reply = peer.Receive();
  EXPECT_EQ(CodeOf(reply), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(reply->message).find("magic"), std::string::npos);
  EXPECT_TRUE(peer.AwaitClosed());
  EXPECT_FALSE(peer.memory().ok());
}

TEST_F(RegionListenerTest, SaysWhyThereIsNoMemory) {
  Start();
  Peer oversize = Connect();
  EXPECT_EQ(CodeOf(oversize.Ask(8 * kPage + 1)),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(Connect().Ask(0)), absl::StatusCode::kInvalidArgument);
  const auto taken = budget_.TryReserve(15 * kPage);
  ASSERT_TRUE(taken.ok());
  const auto reply = Connect().Ask(2 * kPage);
  EXPECT_EQ(CodeOf(reply), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(reply->message).find("4096 bytes free"),
            std::string::npos)
      << reply->message;
  EXPECT_EQ(registry_.regions(), 0);
}

TEST_F(RegionListenerTest, TakesRequestsInPieces) {
  Start();
  Peer peer = Connect();
  const RegionRequest request{kRegionMagic, kPage};
  for (size_t i = 0; i < sizeof(request); ++i) {
    peer.Send(reinterpret_cast<const char*>(&request) + i, 1);
  }
  EXPECT_EQ(CodeOf(peer.Receive()), absl::StatusCode::kOk);
}

TEST_F(RegionListenerTest, ServesOthersBesideAStalledRequest) {
  options_.request_timeout = absl::Hours(1);
  Start();
  Peer stalled = Connect();
  stalled.Send("CGR", 3);
  Peer other = Connect();
  EXPECT_EQ(CodeOf(other.Ask(kPage)), absl::StatusCode::kOk);
  // The connection also doesn't delay the end.
  listener_.reset();
  EXPECT_EQ(registry_.regions(), 0);
  EXPECT_TRUE(stalled.AwaitClosed());
}

TEST_F(RegionListenerTest, HangsUpOnPartialRequestsInTime) {
  options_.request_timeout = absl::Milliseconds(20);
  Start();
  Peer leased = Connect();
  ASSERT_EQ(CodeOf(leased.Ask(kPage)), absl::StatusCode::kOk);
  Peer silent = Connect();
  Peer partial = Connect();
  partial.Send("CGREGIO1", 8);
  EXPECT_TRUE(silent.AwaitClosed());
  EXPECT_TRUE(partial.AwaitClosed());
  EXPECT_EQ(registry_.regions(), 1) << "a lease doesn't time out";
}

TEST_F(RegionListenerTest, EndsTheRegionOfAPeerThatGoesOnTalking) {
  Start();
  Peer peer = Connect();
  ASSERT_EQ(CodeOf(peer.Ask(kPage)), absl::StatusCode::kOk);
  peer.Send("more", 4);
  EXPECT_TRUE(peer.AwaitClosed());
  AwaitRegions(0);
}

TEST_F(RegionListenerTest, BoundsItsConnections) {
  options_.max_connections = 2;
  Start();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 2; ++i) {
    peers.push_back(std::make_unique<Peer>(options_.path));
    ASSERT_EQ(CodeOf(peers.back()->Ask(kPage)), absl::StatusCode::kOk);
  }
  EXPECT_EQ(CodeOf(Connect().Receive()), absl::StatusCode::kResourceExhausted);
  peers.pop_back();
  AwaitRegions(1);
  EXPECT_EQ(CodeOf(Connect().Ask(kPage)), absl::StatusCode::kOk);
}

TEST_F(RegionListenerTest, RefusesOtherUsers) {
  // As root, the child changes its user id. Otherwise the listener expects
  // another owner.
  if (geteuid() != 0) options_.owner = geteuid() + 1;
  Start();
  chmod(folder_.path().c_str(), 0777);
  chmod(options_.path.c_str(), 0777);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(100);
    Peer peer(options_.path);
    if (!peer.connected()) _exit(101);
    _exit(static_cast<int>(CodeOf(peer.Ask(kPage))));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status),
            static_cast<int>(absl::StatusCode::kPermissionDenied));
}

TEST_F(RegionListenerTest, LetsNobodyElseAtTheSocket) {
  Start();
  struct stat file;
  ASSERT_EQ(stat(options_.path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(RegionListenerTest, FreesTheRegionOfAProcessThatIsKilled) {
  Start();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Peer peer(options_.path);
    peer.Ask(kPage);
    pause();
    _exit(0);
  }
  AwaitRegions(1);
  EXPECT_EQ(budget_.used_bytes(), kPage);
  kill(child, SIGKILL);
  AwaitNothingHeld();
  waitpid(child, nullptr, 0);
}

TEST_F(RegionListenerTest, ReplacesTheSocketOfADeadServerOnly) {
  Start();
  EXPECT_EQ(RegionListener::Start(options_, &registry_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Connect().Ask(kPage)), absl::StatusCode::kOk)
      << "the first one still listens";
  const std::string left = absl::StrCat(folder_.path(), "/left");
  ASSERT_EQ(rename(options_.path.c_str(), left.c_str()), 0);
  listener_.reset();
  options_.path = left;
  Start();
  EXPECT_EQ(CodeOf(Connect().Ask(kPage)), absl::StatusCode::kOk);
}

TEST_F(RegionListenerTest, LeavesWhatIsNoSocket) {
  std::ofstream(options_.path) << "precious";
  EXPECT_EQ(RegionListener::Start(options_, &registry_).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(unlink(options_.path.c_str()), 0) << "the file is gone";
  Start();
  ASSERT_EQ(unlink(options_.path.c_str()), 0);
  std::ofstream(options_.path) << "precious";
  listener_.reset();
  EXPECT_EQ(unlink(options_.path.c_str()), 0) << "the file is gone";
}

TEST_F(RegionListenerTest, RefusesPathsThatCannotBe) {
  for (const std::string& path :
       {std::string(), std::string(108, 'x'), folder_.path(),
        folder_.path() + "/missing/socket"}) {
    options_.path = path;
    const absl::Status status =
        RegionListener::Start(options_, &registry_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST(CheckOvercommit, RefusesStrictAccounting) {
  EXPECT_TRUE(CheckOvercommit("0\n").ok());
  EXPECT_TRUE(CheckOvercommit("1\n").ok());
  EXPECT_TRUE(CheckOvercommit("").ok());
  EXPECT_EQ(CheckOvercommit("2\n").code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace convgrad
