// Tests which servers a client asks for the session that it resumes. Sessions
// of real servers are resumed in tests/end_to_end/client/cpp_replicas_test.cc.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "client/cpp/sessions/session.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// A server that answers ResumeSession as its handler does.
class Replica final : public v1::ConvGradSessions::Service {
 public:
  using Handler = std::function<grpc::Status(grpc::ServerContext*)>;

  explicit Replica(Handler handler, double lease_seconds = 600)
      : handler_(std::move(handler)), lease_seconds_(lease_seconds) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Replica() override { server_->Shutdown(); }

  grpc::Status ResumeSession(grpc::ServerContext* context,
                             const v1::ResumeSessionRequest* /*request*/,
                             v1::SessionResponse* answer) override {
    answer->set_session_id(std::string(16, 'i'));
    answer->set_epoch(1);
    answer->set_lease_seconds(lease_seconds_);
    return handler_(context);
  }
  const std::string& address() const { return address_; }

 private:
  const Handler handler_;
  const double lease_seconds_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

grpc::Status HasIt(grpc::ServerContext* /*context*/) {
  return grpc::Status::OK;
}
grpc::Status HasItNot(grpc::ServerContext* /*context*/) {
  return {grpc::StatusCode::NOT_FOUND, "no such session"};
}
grpc::Status IsBusy(grpc::ServerContext* context) {
  context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
}
grpc::Status IsForbidden(grpc::ServerContext* /*context*/) {
  return {grpc::StatusCode::PERMISSION_DENIED, "not yours"};
}

absl::Status Resume(const Replica& first, const Replica& second) {
  ClientOptions options;
  options.server = absl::StrCat(first.address(), ",", second.address());
  options.retries = RetryPolicy{.max_attempts = 40,
                                .initial = absl::Milliseconds(100),
                                .longest = absl::Milliseconds(100)};
  return Session::Resume(options, std::string(16, 'i')).status();
}

TEST(SessionOpening, AsksTheOthersWhileAServerIsBusy) {
  Replica first(IsBusy), second(HasIt);
  EXPECT_EQ(Resume(first, second), absl::OkStatus());
}

TEST(SessionOpening, WaitsForABusyServerIfTheOthersHaveNothing) {
  int attempts = 0;
  Replica first([&attempts](grpc::ServerContext* context) {
    return ++attempts < 30 ? IsBusy(context) : HasIt(context);
  });
  Replica second(HasItNot);
  EXPECT_EQ(Resume(first, second), absl::OkStatus());
  EXPECT_GE(attempts, 30);  // longer than the first round lasts
}

TEST(SessionOpening, NooneHasIt) {
  Replica first(HasItNot), second(HasItNot);
  EXPECT_TRUE(absl::IsNotFound(Resume(first, second)));
}

TEST(SessionOpening, RefusesALeaseThatNoServerGives) {
  for (const double lease : {0.0, -1.0, std::nan("")}) {
    Replica first(HasIt, lease), second(HasItNot);
    const absl::Status resumed = Resume(first, second);
    ASSERT_TRUE(DetailOf(resumed)) << resumed;
    EXPECT_EQ(DetailOf(resumed)->field, "reply.lease_seconds");
  }
}

TEST(SessionOpening, ARefusalIsFinal) {
  Replica first(IsForbidden), second(HasIt);
  EXPECT_TRUE(absl::IsPermissionDenied(Resume(first, second)));
}

}  // namespace
}  // namespace convgrad
