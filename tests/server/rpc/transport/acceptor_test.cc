#include "server/rpc/transport/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <list>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_connection.h"

namespace convgrad {
namespace {

FileDescriptor Duplicate() { return FileDescriptor(dup(STDIN_FILENO)); }

// Blocks until the acceptor's state is `state`.
void AwaitHearing(Acceptor* acceptor, Hearing state) {
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (acceptor->hearing() != state && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  ASSERT_EQ(acceptor->hearing(), state);
}

// Opens no descriptor, because its number would be missing in the test's order.
int Descriptors() {
  int count = 0;
  for (int file = 0; file < 1024; ++file) {
    if (fcntl(file, F_GETFD) != -1) ++count;
  }
  return count;
}

// Blocks until the process has `count` descriptors.
void AwaitDescriptors(int count) {
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (Descriptors() != count && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_EQ(Descriptors(), count);
}

TEST(Acceptor, ClosesTheConnectionThatWasSilentLongest) {
  Acceptor acceptor(absl::Hours(1));
  std::atomic<int> taken = 0;
  const auto port =
      acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false, [&](int socket) {
        ++taken;
        close(socket);
      });
  ASSERT_TRUE(port.ok()) << port.status();
  acceptor.Start();
  FileDescriptor lowest = Duplicate();
  const int before = Descriptors();
  RawConnection first(*port);
  AwaitDescriptors(before + 2);
  RawConnection oldest(*port);
  RawConnection older(*port);
  AwaitDescriptors(before + 6);
  first.Send("P");
  AwaitDescriptors(before + 5);
  // The client's end gets the number of `lowest`, the server's that of `first`.
  lowest = FileDescriptor();
  RawConnection newest(*port);
  AwaitDescriptors(before + 6);
  // The next client's end gets the last descriptor.
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit one_more = {static_cast<rlim_t>(Duplicate().get() + 1),
                           limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const RawConnection next(*port);
  EXPECT_TRUE(oldest.AwaitEnd());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  // No other connection was closed for it.
  for (RawConnection* silent : {&older, &newest}) {
    silent->Send("P");
    EXPECT_TRUE(silent->AwaitEnd());
  }
  EXPECT_EQ(taken, 3);
}

TEST(Acceptor, IsDeafWithoutDescriptors) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to look at an object's virtual table";
#endif
  Acceptor acceptor(absl::Hours(1));
  const auto port = acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false, close);
  ASSERT_TRUE(port.ok()) << port.status();
  acceptor.Start();
  EXPECT_EQ(acceptor.hearing(), Hearing::kGood);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The client's end gets the last descriptor.
  const rlimit one_more = {static_cast<rlim_t>(Duplicate().get() + 1),
                           limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  {
    const RawConnection client(*port);
    AwaitHearing(&acceptor, Hearing::kDeaf);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  AwaitHearing(&acceptor, Hearing::kGood);
}

TEST(Acceptor, LeavesDescriptorsForFiles) {
  constexpr int kLimit = 320;  // A sixteenth is 20.
  std::vector<FileDescriptor> taken;
  Acceptor acceptor(absl::Hours(1), /*most_spare=*/256);
  const auto port =
      acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false,
                      [&](int socket) { taken.emplace_back(socket); });
  ASSERT_TRUE(port.ok()) << port.status();
  taken.reserve(kLimit);
  acceptor.Start();
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower = {kLimit, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  {
    std::list<RawConnection> clients;
    while (acceptor.hearing() == Hearing::kGood &&
           clients.size() < kLimit / 2) {
      clients.emplace_back(*port).Send("P");
      absl::SleepFor(absl::Milliseconds(2));
    }
    AwaitHearing(&acceptor, Hearing::kDeaf);
    std::list<FileDescriptor> files;
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(files.emplace_back(Duplicate()).ok());
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  AwaitHearing(&acceptor, Hearing::kGood);
}

TEST(Acceptor, ClosesNoneThatHasSentBytesInABurst) {
  constexpr int kClients = 20;
  std::list<FileDescriptor> taken;
  std::atomic<int> count = 0;
  Acceptor acceptor(absl::Hours(1));
  const auto port =
      acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false, [&](int socket) {
        taken.emplace_back(socket);
        ++count;
      });
  ASSERT_TRUE(port.ok()) << port.status();
  std::list<RawConnection> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(*port).Send("P");
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // Half of the connections have a descriptor.
  const rlimit lower = {static_cast<rlim_t>(Duplicate().get() + kClients / 2),
                        limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  acceptor.Start();
  AwaitHearing(&acceptor, Hearing::kDeaf);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const absl::Time give_up = absl::Now() + absl::Seconds(10);
  while (count < kClients && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(count, kClients);
}

TEST(Acceptor, EndsTakenConnectionsBeforeDescriptorsAreShort) {
  constexpr int kLimit = 320;
  constexpr int kSpare = kLimit / 16;
  // Only the acceptor's thread uses it.
  std::list<FileDescriptor> taken;
  std::atomic<int> count = 0;
  Acceptor acceptor(absl::Hours(1), kSpare, [&](int most) {
    EXPECT_EQ(most, kSpare);
    for (int i = 0; i < most; ++i) taken.pop_front();
    return most;
  });
  const auto port =
      acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false, [&](int socket) {
        taken.emplace_back(socket);
        ++count;
      });
  ASSERT_TRUE(port.ok()) << port.status();
  acceptor.Start();
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower = {kLimit, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  // The clients have descriptors of the same process.
  std::list<RawConnection> clients;
  while (clients.size() < 5 * kLimit / 8 && count == std::ssize(clients)) {
    clients.emplace_back(*port).Send("P");
    const absl::Time give_up = absl::Now() + absl::Seconds(10);
    while (count < std::ssize(clients) && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(count, 5 * kLimit / 8);
}

TEST(Acceptor, IsLostIfItsThreadStandsStill) {
  Acceptor acceptor(absl::Hours(1));
  absl::Notification goes_on;
  const auto port =
      acceptor.Listen("127.0.0.1:0", /*speaks_tls=*/false, [&](int socket) {
        goes_on.WaitForNotification();
        close(socket);
      });
  ASSERT_TRUE(port.ok()) << port.status();
  acceptor.Start();
  RawConnection client(*port);
  client.Send("P");
  AwaitHearing(&acceptor, Hearing::kLost);
  goes_on.Notify();
  AwaitHearing(&acceptor, Hearing::kGood);
}

TEST(Acceptor, TakesTheFileOfItsUnixSocketAway) {
  const std::string path = absl::StrCat(testing::TempDir(), "/acceptor");
  {
    Acceptor acceptor(absl::Hours(1));
    const std::string address = absl::StrCat("unix://", path);
    EXPECT_EQ(*acceptor.Listen(address, /*speaks_tls=*/false, close), 0);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace convgrad
