#include "server/machine/parent.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

void MakeSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int file = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(
      bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
      0);
  close(file);
}

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/parent-XXXXXX";
  return mkdtemp(folder.data());
}

sigset_t Blocked(int signal) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

TEST(ParentTest, SignalsComeWithAndWithoutAParent) {
  const sigset_t signals = Blocked(SIGUSR1);
  for (const int parent : {0, static_cast<int>(getppid())}) {
    kill(getpid(), SIGUSR1);
    EXPECT_EQ(WaitForSignalOrParent(signals, parent), SIGUSR1);
  }
}

TEST(ParentTest, AParentThatHasEndedIsASignalToStop) {
  EXPECT_EQ(WaitForSignalOrParent(Blocked(SIGUSR1), getppid() + 1), SIGTERM);
}

TEST(ParentTest, AFolderGoesWithItsSockets) {
  const std::string folder = NewFolder();
  MakeSocket(folder + "/calls");
  MakeSocket(folder + "/regions");
  RemoveSocketFolder(folder);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(ParentTest, AFolderWithSomethingElseStays) {
  const std::string folder = NewFolder();
  MakeSocket(folder + "/calls");
  std::ofstream(folder + "/file") << "text";
  RemoveSocketFolder(folder);
  EXPECT_FALSE(std::filesystem::exists(folder + "/calls"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/file"));
  RemoveSocketFolder("");
  RemoveSocketFolder(folder + "/no-such");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace convgrad
