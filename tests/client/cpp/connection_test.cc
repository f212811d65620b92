// Tests calls without payloads against a service in this process.
#include "client/cpp/connection.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Lists many sessions.
class ManySessions final : public v1::ConvGradSessions::Service {
 public:
  static constexpr int kCount = 10000;

  grpc::Status ListSessions(grpc::ServerContext*,
                            const v1::ListSessionsRequest*,
                            v1::ListSessionsResponse* response) override {
    for (int i = 0; i < kCount; ++i) {
      response->add_sessions()->set_name(std::string(200, 'n'));
    }
    return grpc::Status::OK;
  }
};

TEST(ConnectionTest, AListOfSessionsMayBeLong) {
  ManySessions service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto client = *Client::Connect({absl::StrCat("127.0.0.1:", port)});
  const auto listed =
      client->Sessions(/*everybody=*/true, absl::Now() + absl::Seconds(30));
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->sessions_size(), ManySessions::kCount);
  server->Shutdown();
}

}  // namespace
}  // namespace convgrad
