#include "server/rpc/transport/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_connection.h"

namespace convgrad {
namespace {

FileDescriptor Duplicate() { return FileDescriptor(dup(STDIN_FILENO)); }

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
  Acceptor acceptor(/*speaks_tls=*/false, absl::Hours(1));
  const auto port = acceptor.Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  std::atomic<int> taken = 0;
  acceptor.Start([&](int socket) {
    ++taken;
    close(socket);
  });
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

}  // namespace
}  // namespace convgrad
