// Tests a server that is stopped under load and started again, as in `docker
// restart` or a rolling restart.
#include <signal.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/child_server.h"

namespace convgrad {
namespace {

constexpr int kStops = 12;

// gRPC 1.51 may wait for 10 s in its own shutdown. Nothing else in a stop takes
// nearly as long.
constexpr absl::Duration kHang = absl::Seconds(9);

// Calls `call` repeatedly in its own threads until it ends, and counts the
// calls.
class Load {
 public:
  using Call = std::function<absl::Status()>;

  Load(int threads, const Call& call) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, call] {
        while (!stops_) {
          const absl::Status status = call();
          EXPECT_TRUE(status.ok()) << status;
          ++calls_;
        }
      });
    }
  }
  ~Load() {
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // Waits until calls are answered again.
  void AwaitCalls() const {
    const int64_t enough = calls_ + 4 * std::ssize(threads_);
    while (calls_ < enough) std::this_thread::yield();
  }

 private:
  std::atomic<bool> stops_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::vector<std::thread> threads_;
};

// A call of one channel: 16 KiB of request and 8 MiB of reply, more than a
// socket takes at once, so that gRPC's backup poller waits for the socket.
OperationCall LargeReply(const Floats& input, const Floats& weight) {
  OperationCall call;
  call.operation =
      WholeOperation(*Parse("conv1d_n1_c1_o512_i4096_k1"), Direction::kForward,
                     DataType::kF32, Layout::kNCX);
  call.operands[PositionOf(Operand::kInput)] = ViewOf(input);
  call.operands[PositionOf(Operand::kWeight)] = ViewOf(weight);
  return call;
}

TEST(Stopping, LosesNoCallOfClientsThatRepeatAndTakesNoTenSeconds) {
  auto server = std::make_unique<ChildServer>(std::vector<std::string>());
  const std::string address = server->address();
  ClientOptions options = OptionsFor(address);
  options.retries->max_attempts = 1'000'000;
  const auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok());
  const Floats input(4096, 1.0f);
  const Floats weight(512, 1.0f);
  const Load load(
      8, [&] { return (*client)->Run(LargeReply(input, weight)).status(); });
  int hangs = 0;
  for (int i = 0; i < kStops; ++i) {
    load.AwaitCalls();
    const absl::Time start = absl::Now();
    server->Signal(SIGTERM);
    const Exit exit = server->Await();
    EXPECT_EQ(exit.code, 0) << exit.output;
    if (absl::Now() - start > kHang) ++hangs;
    server = std::make_unique<ChildServer>(
        std::vector<std::string>{absl::StrCat("--listen=", address)});
  }
  EXPECT_EQ(hangs, 0);
}

}  // namespace
}  // namespace convgrad
