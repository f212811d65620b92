#include "server/listener_watch.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// A listening socket that accepts and closes connections only when a test says
// so.
class Listener {
 public:
  Listener() : file_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(file_, reinterpret_cast<sockaddr*>(&address), size);
    listen(file_, 100);
    getsockname(file_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { close(file_); }

  const std::string& address() const { return address_; }
  // Behaves as a TLS server: it sends nothing before its client has, and closes
  // when the client has closed. Returns whether there was a connection.
  bool Accept() {
    const int connection = accept(file_, nullptr, nullptr);
    if (connection < 0) return false;
    char byte;
    EXPECT_EQ(recv(connection, &byte, 1, 0), 0) << "its end was awaited";
    close(connection);
    return true;
  }

 private:
  const int file_;
  std::string address_;
};

class ListenerWatchTest : public testing::Test {
 protected:
  // Advances the time second by second.
  void Pass(int seconds, bool accepts) {
    for (int i = 0; i < seconds; ++i) {
      now_ += absl::Seconds(1);
      // The first tick connects, the second shuts down, the third reads.
      for (int step = 0; step < 3; ++step) {
        watch_.Tick(now_);
        while (accepts && listener_.Accept()) {
        }
      }
    }
  }

  Listener listener_;
  std::optional<Hearing> heard_;
  ListenerWatch watch_{{listener_.address()},
                       [this](Hearing hearing) { heard_ = hearing; }};
  absl::Time now_ = absl::Now();
};

TEST_F(ListenerWatchTest, IsContentWithOneThatAccepts) {
  Pass(300, true);
  EXPECT_EQ(heard_, std::nullopt);
}

TEST_F(ListenerWatchTest, TellsOfOneThatFallsSilentAndOfItsReturn) {
  Pass(20, true);
  Pass(20, false);
  EXPECT_EQ(heard_, Hearing::kDeaf);
  Pass(20, true);
  EXPECT_EQ(heard_, Hearing::kGood);
}

TEST_F(ListenerWatchTest, GivesOneUpThatStaysSilent) {
  Pass(20, true);
  Pass(100, false);
  EXPECT_EQ(heard_, Hearing::kLost);
  Pass(20, true);
  EXPECT_EQ(heard_, Hearing::kGood);
}

TEST_F(ListenerWatchTest, BlamesNoListenerForDescriptorsThatLack) {
  Pass(20, true);
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {3, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  Pass(100, false);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(heard_, Hearing::kDeaf);
}

TEST_F(ListenerWatchTest, ExpectsNothingOfOneThatNeverAnswered) {
  Pass(100, false);
  EXPECT_EQ(heard_, std::nullopt);
}

TEST(ListenerWatch, ReadsWhatAddressesMayBe) {
  for (const char* address :
       {"0.0.0.0:1", "[::]:1", "localhost:1", "unix:/nowhere",
        "unix:///nowhere", "unix-abstract:nobody", "unix", "", "x"}) {
    ListenerWatch watch({address}, [](Hearing) { FAIL(); });
    watch.Tick(absl::Now());
  }
}

}  // namespace
}  // namespace convgrad
