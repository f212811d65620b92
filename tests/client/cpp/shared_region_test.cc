// Tests which memory the client takes from a server on its side socket.
#include "client/cpp/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "proto/file_descriptor.h"
#include "proto/region_handshake.h"

namespace convgrad {
namespace {

constexpr int64_t kBytes = 4096;

// Returns `bytes` of memory with these seals.
FileDescriptor Memory(int64_t bytes, int seals) {
  FileDescriptor memory(memfd_create("region", MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), bytes), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

// A server that answers one client with a file.
class OneRegion {
 public:
  explicit OneRegion(FileDescriptor file) : file_(std::move(file)) {
    unlink(path_.c_str());
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    path_.copy(name.sun_path, path_.size());
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name),
                   sizeof(name)),
              0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this] { Answer(); });
  }
  ~OneRegion() { thread_.join(); }

  std::string address() const { return "unix:" + path_; }

 private:
  void Answer() {
    const FileDescriptor client(accept(listener_.get(), nullptr, nullptr));
    RegionRequest request;
    EXPECT_EQ(recv(client.get(), &request, sizeof(request), MSG_WAITALL),
              static_cast<ssize_t>(sizeof(request)));
    RegionReply reply;
    iovec bytes = {&reply, sizeof(reply)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int file = file_.get();
    std::memcpy(CMSG_DATA(header), &file, sizeof(file));
    EXPECT_EQ(sendmsg(client.get(), &message, 0),
              static_cast<ssize_t>(sizeof(reply)));
  }

  const FileDescriptor file_;
  const std::string path_ = testing::TempDir() + "/regions";
  const FileDescriptor listener_{socket(AF_UNIX, SOCK_STREAM, 0)};
  std::thread thread_;
};

absl::Status Connected(FileDescriptor file) {
  const OneRegion server(std::move(file));
  return SharedRegion::Connect(server.address(), kBytes).status();
}

TEST(SharedRegionTest, TakesMemoryThatCannotShrink) {
  const absl::Status status = Connected(Memory(kBytes, F_SEAL_SHRINK));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(SharedRegionTest, RefusesOtherMemory) {
  EXPECT_TRUE(absl::IsInternal(Connected(Memory(kBytes, F_SEAL_GROW))));
  EXPECT_TRUE(absl::IsInternal(Connected(Memory(2 * kBytes, F_SEAL_SHRINK))));
}

// A server could shrink a file on a disk, which has no seals, and a read of the
// mapping would end the client.
TEST(SharedRegionTest, RefusesAFileOnADisk) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(ftruncate(fileno(file), kBytes), 0);
  const absl::Status status = Connected(FileDescriptor(dup(fileno(file))));
  std::fclose(file);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
}

}  // namespace
}  // namespace convgrad
