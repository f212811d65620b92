// Tests runs that may compute convolutions by Winograd's algorithm over a real
// socket: who decides, and what the report says.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

using Floats = std::vector<float>;

// The second convolution has enough channels for the fast way.
constexpr char kNetwork[] = R"(
input x
parameter v [32, 3, 3, 3]
parameter w [32, 32, 3, 3]
a = conv(x, v, padding=1)
b = conv(a, w, padding=1)
c = relu(b)
d = mul(c, other=0.5)
l = mse(c, d)
output l
output d
)";

Floats Waves(size_t count) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  return values;
}

// A session with the network, on a server of its own.
class Session {
 public:
  explicit Session(bool server_allows)
      : server_(ConfigOf(server_allows)), client_(server_.channel()) {
    client_.Put("v", {32, 3, 3, 3}, Waves(864));
    client_.Put("w", {32, 32, 3, 3}, Waves(9216));
    const auto loaded = client_.Load("net", kNetwork);
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
  }

  // Returns the reply of a run that leaves `fast` unset, or sets it. `first` is
  // the first element of the images.
  SessionReply<v1::RunProgramResponse> Run(std::optional<bool> fast,
                                           bool trains = false,
                                           float first = 0) {
    v1::RunProgramRequest request;
    request.set_program("net");
    request.set_report_groups(true);
    if (fast) request.set_fast(*fast);
    if (trains) request.mutable_backward();
    Floats images = Waves(1536);
    images[0] = first;
    AddValue("x", {2, 3, 16, 16}, images, request.mutable_inputs(), &request);
    return trains ? client_.Run(request) : client_.Infer(request);
  }
  NetworkClient& client() { return client_; }

 private:
  static Config ConfigOf(bool server_allows) {
    Config config = TestConfig();
    config.backends = "onednn";
    config.fast_convolutions = server_allows;
    return config;
  }

  TestServer server_;
  NetworkClient client_;
};

// Returns the first value of each group that is fast.
std::vector<std::string> FastOnes(const v1::RunReport& report) {
  std::vector<std::string> names;
  for (const auto& group : report.groups()) {
    if (group.fast()) names.push_back(group.values(0));
  }
  return names;
}

TEST(FastConvolutions, AreReportedByTheirGroups) {
  Session session(true);
  const std::vector<std::string> fast = {"b"};
  for (const bool trains : {false, true}) {
    for (const std::optional<bool> asked : {std::optional<bool>(), {true}}) {
      const auto run = session.Run(asked, trains);
      ASSERT_TRUE(run.status.ok()) << run.status.error_message();
      EXPECT_EQ(FastOnes(run.response.report()), fast);
    }
    const auto direct = session.Run(false, trains);
    ASSERT_TRUE(direct.status.ok()) << direct.status.error_message();
    EXPECT_EQ(FastOnes(direct.response.report()), std::vector<std::string>());
  }
}

TEST(FastConvolutions, AreForbiddenByTheServersFlag) {
  Session free(true), forbidden(false);
  const auto fast = free.Run(std::nullopt);
  const auto direct = free.Run(false);
  ASSERT_TRUE(fast.status.ok() && direct.status.ok());
  EXPECT_NE(fast.response.payloads(1), direct.response.payloads(1));
  for (const std::optional<bool> asked : {std::optional<bool>(), {false}}) {
    const auto run = forbidden.Run(asked);
    ASSERT_TRUE(run.status.ok()) << run.status.error_message();
    EXPECT_EQ(FastOnes(run.response.report()), std::vector<std::string>());
    EXPECT_EQ(run.response.payloads(1), direct.response.payloads(1));
  }
  for (const bool trains : {false, true}) {
    const auto refused = forbidden.Run(true, trains);
    EXPECT_EQ(refused.status.error_code(), grpc::FAILED_PRECONDITION);
    EXPECT_EQ(refused.status.error_message(),
              "fast: found true, expected false or unset: this server has "
              "--fast_convolutions=false");
  }
  // The refused change is undone, so the session goes on.
  EXPECT_TRUE(forbidden.Run(std::nullopt, true).status.ok());
}

TEST(FastConvolutions, KeepTheirBitsBesideDirectOnes) {
  Session session(true);
  const auto output = [&](bool fast, float first) {
    const auto run = session.Run(fast, false, first);
    EXPECT_TRUE(run.status.ok()) << run.status.error_message();
    return run.response.payloads(1);
  };
  const std::string fast = output(true, 0), direct = output(false, 0);
  EXPECT_NE(fast, direct);
  for (const float spike : {INFINITY, NAN, 1e20F, -3e38F}) {
    // Its elements reach the second convolution, which is then direct.
    EXPECT_EQ(output(true, spike), output(false, spike)) << spike;
    EXPECT_EQ(output(true, 0), fast);
    EXPECT_EQ(output(false, 0), direct);
  }
}

}  // namespace
}  // namespace convgrad
