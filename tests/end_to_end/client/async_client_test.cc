// Tests asynchronous calls, and clients of several servers.
#include <array>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

// A 1x1 convolution of one channel: the output is `factor` times 0, 1, 2...
class Scaling {
 public:
  explicit Scaling(float factor) : weight_(factor) {
    for (size_t i = 0; i < kPixels; ++i) input_[i] = static_cast<float>(i);
    call_.operation =
        WholeOperation(*Parse("conv2d_n1_c1_o1_i8_k1"), Direction::kForward,
                       DataType::kF32, Layout::kNCX);
    call_.operands[static_cast<size_t>(Operand::kInput)] =
        BytesOf(input_.data(), kPixels);
    call_.operands[static_cast<size_t>(Operand::kWeight)] =
        BytesOf(&weight_, 1);
    call_.deadline = absl::Now() + absl::Seconds(100);
  }

  const OperationCall& call() const { return call_; }

  void ExpectRight(const absl::StatusOr<OperationReply>& reply) const {
    ASSERT_TRUE(reply.ok()) << reply.status();
    std::array<float, kPixels> output;
    ASSERT_EQ(reply->results[0].bytes.size(), sizeof(output));
    std::memcpy(&output, reply->results[0].bytes.data(), sizeof(output));
    for (size_t i = 0; i < kPixels; ++i) {
      EXPECT_EQ(output[i], weight_ * input_[i]);
    }
  }

 private:
  static constexpr size_t kPixels = 64;
  static absl::Span<const std::byte> BytesOf(const float* values,
                                             size_t count) {
    return {reinterpret_cast<const std::byte*>(values), count * sizeof(float)};
  }

  std::array<float, kPixels> input_;
  const float weight_;
  OperationCall call_;
};

std::vector<std::unique_ptr<Scaling>> Scalings(int count) {
  std::vector<std::unique_ptr<Scaling>> scalings;
  for (int i = 0; i < count; ++i) {
    scalings.push_back(std::make_unique<Scaling>(static_cast<float>(i)));
  }
  return scalings;
}

using Futures = std::vector<std::future<absl::StatusOr<OperationReply>>>;

Futures SubmitAll(Client* client,
                  const std::vector<std::unique_ptr<Scaling>>& scalings) {
  Futures futures;
  for (const auto& scaling : scalings) {
    futures.push_back(client->Submit(scaling->call()));
  }
  return futures;
}

TEST(AsyncClient, EachCallGetsItsOwnAnswer) {
  ChildServer server({});
  const auto client =
      *Client::Connect({.server = server.address(), .async_calls = 3});
  const auto scalings = Scalings(40);
  Futures futures = SubmitAll(client.get(), scalings);
  for (size_t i = 0; i < futures.size(); ++i) {
    scalings[i]->ExpectRight(futures[i].get());
  }
}

TEST(AsyncClient, CallbacksMayCallOn) {
  ChildServer server({});
  const auto client =
      *Client::Connect({.server = server.address(), .async_calls = 1});
  const Scaling first(2), second(3);
  std::promise<void> answered;
  client->RunAsync(
      first.call(), [&](const absl::StatusOr<OperationReply>& reply) {
        first.ExpectRight(reply);
        client->RunAsync(second.call(),
                         [&](const absl::StatusOr<OperationReply>& other) {
                           second.ExpectRight(other);
                           answered.set_value();
                         });
      });
  answered.get_future().wait();
}

TEST(AsyncClient, ItsEndWaitsForWhatIsUnderWayAndCancelsTheRest) {
  ChildServer server({});
  auto client =
      *Client::Connect({.server = server.address(), .async_calls = 2});
  server.Signal(SIGSTOP);
  const auto scalings = Scalings(6);
  Futures futures = SubmitAll(client.get(), scalings);
  std::thread end([&] { client.reset(); });
  // The client cancels the waiting calls before the server can answer any.
  EXPECT_EQ(futures.back().get().status().code(), absl::StatusCode::kCancelled);
  server.Signal(SIGCONT);
  end.join();
  futures.pop_back();
  for (size_t i = 0; i < futures.size(); ++i) {
    const auto reply = futures[i].get();
    if (reply.status().code() == absl::StatusCode::kCancelled) continue;
    scalings[i]->ExpectRight(reply);
  }
}

// Returns the number of calls that the server has answered.
int Answered(const ChildServer& server) {
  const std::string line =
      "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"ConvForward\"";
  const std::string text = HttpGet(server.metrics_port(), "/metrics");
  const size_t at = text.find(line);
  if (at == std::string::npos) return -1;
  return std::atoi(text.substr(text.find("} ", at) + 2).c_str());
}

// Waits for the count, because a call is counted some time after its client has
// the answer.
void ExpectAnswered(const ChildServer& server, int calls) {
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  while (Answered(server) < calls && absl::Now() < patience) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(Answered(server), calls);
}

TEST(ConnectionPool, UsesServersInTurnAndOutlastsOne) {
  ChildServer one({"--metrics_listen=127.0.0.1:0"});
  auto other = std::make_unique<ChildServer>(std::vector<std::string>{});
  ClientOptions options;
  options.server = absl::StrCat(one.address(), ",", other->address());
  options.connections = 2;
  options.retries = RetryPolicy{};
  const auto client = *Client::Connect(options);
  const auto scalings = Scalings(20);
  for (const auto& scaling : scalings) {
    scaling->ExpectRight(client->Run(scaling->call()));
  }
  ExpectAnswered(one, 10);

  other.reset();
  for (const auto& scaling : scalings) {
    scaling->ExpectRight(client->Run(scaling->call()));
  }
  ExpectAnswered(one, 30);
}

TEST(ConnectionPool, RefusesOptionsThatDoNotFit) {
  const auto refusal = [](const ClientOptions& options) {
    const auto client = Client::Connect(options);
    EXPECT_FALSE(client.ok());
    return std::string(client.status().message());
  };
  EXPECT_TRUE(absl::StartsWith(refusal({.server = "localhost:1,"}), "server:"));
  for (const std::string server :
       {"localhost", "localhost:http", "localhost:70700", "[::1]", "::1:7070",
        "http://localhost:7070", "dns:///localhost"}) {
    EXPECT_EQ(refusal({.server = "localhost:1," + server}),
              "server: found '" + server +
                  "', expected HOST:PORT (a server's default port is 7070) or "
                  "unix:PATH");
  }
  EXPECT_TRUE(absl::StartsWith(
      refusal({.server = "localhost:1", .connections = 0}), "connections:"));
  EXPECT_TRUE(absl::StartsWith(
      refusal({.server = "localhost:1", .async_calls = 0}), "async_calls:"));
  EXPECT_TRUE(absl::StartsWith(
      refusal({.server = "localhost:1,example.com:1", .token = "t"}),
      "token: found a plaintext connection"));
}

}  // namespace
}  // namespace convgrad
