// Tests clients that leave after they have sent everything. The server counts
// them as gone, not as invalid.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_http2.h"
#include "tests/end_to_end/peers/raw_stream.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

constexpr int kClients = 200;

// The client leaves by a reset of its call, or by closing its connection.
enum class Way { kReset, kClose };

// The client sends a unary call, a stream, or an incomplete stream.
enum class Sent { kMessage, kStream, kHeader };

std::string MethodOf(Sent sent) {
  return sent == Sent::kMessage ? "ConvBackward" : "ConvBackwardStream";
}

std::vector<std::string> MessagesOf(Sent sent) {
  if (sent == Sent::kMessage) return {SeedBackward().SerializeAsString()};
  std::vector<std::string> messages = {TestHeader().SerializeAsString()};
  if (sent == Sent::kHeader) return messages;
  for (const v1::ConvStreamRequest& frame : TestFrames()) {
    messages.push_back(frame.SerializeAsString());
  }
  return messages;
}

class LeavingClientsTest
    : public testing::TestWithParam<std::tuple<Sent, Way>> {
 protected:
  static Sent sent() { return std::get<0>(GetParam()); }

  void SendAndLeave() {
    RawHttp2 client(server_.address());
    EXPECT_TRUE(client.AwaitSettings());
    const uint32_t stream =
        client.Open("/convgrad.v1.ConvGrad/" + MethodOf(sent()));
    for (const std::string& message : MessagesOf(sent())) {
      client.SendMessage(stream, message);
    }
    client.Finish(stream);
    if (std::get<1>(GetParam()) == Way::kReset) client.Reset(stream);
    client.EndSending();
    EXPECT_TRUE(client.AwaitEnd());
  }

  // Returns the number of ended calls, of all or only of those with `code`.
  int Ended(const std::string& code = "") {
    int ended = 0;
    const std::string text = server_.server().MetricsText();
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (!absl::StartsWith(line, "grpc_server_handled_total{") ||
          !absl::StrContains(line,
                             absl::StrCat("\"", MethodOf(sent()), "\"")) ||
          !absl::StrContains(line, absl::StrCat("grpc_code=\"", code))) {
        continue;
      }
      int calls = 0;
      EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &calls));
      ended += calls;
    }
    return ended;
  }

  TestServer server_;
};

TEST_P(LeavingClientsTest, CountAsGone) {
  for (int i = 0; i < kClients; ++i) SendAndLeave();
  const absl::Time limit = absl::Now() + absl::Minutes(2);
  while (Ended() < kClients && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(Ended(), kClients);
  EXPECT_EQ(Ended("Canceled\"") + Ended("OK\""), kClients);
  server_.ExpectNothingHeld();
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Sent, Way>>& info) {
  constexpr const char* kSent[] = {"Message", "Stream", "Header"};
  return absl::StrCat(
      kSent[static_cast<int>(std::get<0>(info.param))],
      std::get<1>(info.param) == Way::kReset ? "Reset" : "Close");
}

INSTANTIATE_TEST_SUITE_P(
    All, LeavingClientsTest,
    testing::Combine(testing::Values(Sent::kMessage, Sent::kStream,
                                     Sent::kHeader),
                     testing::Values(Way::kReset, Way::kClose)),
    NameOf);

}  // namespace
}  // namespace convgrad
