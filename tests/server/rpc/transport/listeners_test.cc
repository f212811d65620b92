// Tests the limits of connections that no flag sets.
#include "server/rpc/transport/listeners.h"

#include "gtest/gtest.h"
#include "tests/end_to_end/peers/raw_http2.h"

namespace convgrad {
namespace {

TEST(Listeners, AConnectionWithoutCallsEnds) {
  ConnectionTraffic traffic;
  grpc::ResourceQuota quota("test");
  grpc::CallbackGenericService service;
  ListenerOptions options;
  options.addresses = {"127.0.0.1:0"};
  options.quota = &quota;
  options.max_connection_idle = absl::Milliseconds(200);
  const auto listeners = Listeners::Start(options, {}, &service, &traffic);
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  RawHttp2 idle((*listeners)->addresses()[0]);
  ASSERT_TRUE(idle.AwaitSettings());
  EXPECT_TRUE(idle.AwaitEnd());
}

}  // namespace
}  // namespace convgrad
