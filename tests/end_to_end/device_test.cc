// Tests backends with devices, from the view of clients and operators. The
// devices are a puppet's.
#include <chrono>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/health_of.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

class DeviceTest : public testing::Test {
 protected:
  // Starts a server with a fast puppet with devices, whose name is that of the
  // GPU backend, and, if `with_cores`, with a backend on cores.
  void Start(bool with_cores) {
    PuppetTraits traits;
    traits.devices = 2;
    traits.rates = {{1e15, 1e15, 1e15}, 1e9, absl::ZeroDuration()};
    std::vector<RegisteredBackend> backends;
    backends.push_back(RegisteredPuppet("cuda", &strings_, traits));
    if (with_cores) {
      for (RegisteredBackend& entry : MakeBackends()) {
        if (entry.name == "onednn") backends.push_back(std::move(entry));
      }
    }
    server_.emplace(TestConfig(), std::move(backends));
  }

  grpc::Status Call(const v1::ConvBackwardRequest& request = SeedBackward()) {
    grpc::ClientContext context;
    grpc::Status status =
        server_->stub().ConvBackward(&context, request, &response_);
    trailers_ = TrailersOf(context);
    return status;
  }

  PuppetStrings strings_;
  std::optional<TestServer> server_;
  v1::ConvBackwardResponse response_;
  Trailers trailers_;
};

TEST_F(DeviceTest, TheReportSaysWhatAutoChoseAndWhatItExpected) {
  Start(true);
  ASSERT_TRUE(Call().ok());
  const v1::Report& report = response_.report();
  EXPECT_EQ(report.backend(), "cuda");
  ASSERT_EQ(report.predictions_size(), 2);
  const v1::Prediction& cuda = report.predictions(0);
  const v1::Prediction& onednn = report.predictions(1);
  EXPECT_EQ(cuda.backend(), "cuda");
  EXPECT_GT(cuda.wire(), 0);
  EXPECT_GT(cuda.transfer(), 0);
  EXPECT_EQ(onednn.backend(), "onednn");
  EXPECT_EQ(onednn.wire(), cuda.wire());
  EXPECT_EQ(onednn.transfer(), 0);
  EXPECT_LT(cuda.transfer() + cuda.compute(), onednn.compute());
}

TEST_F(DeviceTest, ANamedBackendIsNotPredicted) {
  Start(true);
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_options()->set_backend(v1::BACKEND_CHOICE_ONEDNN);
  ASSERT_TRUE(Call(request).ok());
  EXPECT_EQ(response_.report().backend(), "onednn");
  EXPECT_EQ(response_.report().predictions_size(), 0);
}

TEST_F(DeviceTest, HealthDoesNotWaitForTheDriverOfALostDevice) {
  Start(true);
  EXPECT_EQ(HealthOf(server_->channel(), "devices"), kServing);
  strings_.LoseDevice(1, /*hangs=*/true);
  AwaitHealth(server_->channel(), "devices", kNotServing);
  strings_.ReleaseDriver();
}

TEST_F(DeviceTest, MetricsDoNotWaitForTheDriver) {
  Start(true);
  strings_.LoseDevice(1, /*hangs=*/true);
  auto scrape = std::async(std::launch::async,
                           [this] { return server_->server().MetricsText(); });
  const auto waited = scrape.wait_for(std::chrono::seconds(20));
  strings_.ReleaseDriver();
  EXPECT_EQ(waited, std::future_status::ready);
  const std::string text = scrape.get();
  for (const char* line : {"up{backend=\"cuda\",device=\"0\"} 1\n",
                           "up{backend=\"cuda\",device=\"1\"} 0\n",
                           "memory_bytes{backend=\"cuda\",device=\"1\"} 1000\n",
                           "utilization_ratio{backend=\"cuda\",device=\"1\"} "
                           "0.5\n"}) {
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat("convgrad_device_", line)))
        << line;
  }
}

TEST_F(DeviceTest, ADrainTellsThatADriverHangs) {
  Start(true);
  strings_.LoseDevice(1, /*hangs=*/true);
  EXPECT_FALSE(server_->server().Drain());
  strings_.ReleaseDriver();
}

TEST_F(DeviceTest, ALostDeviceIsSeenInHealthAndMetricsAndTheRestServes) {
  Start(true);
  EXPECT_EQ(HealthOf(server_->channel(), "devices"), kServing);
  EXPECT_TRUE(
      absl::StrContains(server_->server().MetricsText(),
                        "convgrad_device_up{backend=\"cuda\",device=\"1\"} 1"));
  strings_.LoseDevice(1);
  AwaitHealth(server_->channel(), "devices", kNotServing);
  server_->AwaitMetric("convgrad_device_up{backend=\"cuda\",device=\"1\"} 0");
  server_->AwaitMetric("convgrad_device_up{backend=\"cuda\",device=\"0\"} 1");
  EXPECT_EQ(HealthOf(server_->channel(), "readiness"), kServing);
  ASSERT_TRUE(Call().ok());
  EXPECT_EQ(response_.report().backend(), "cuda");
  strings_.LoseDevice(0);
  ASSERT_TRUE(Call().ok());
  EXPECT_EQ(response_.report().backend(), "onednn");
}

TEST_F(DeviceTest, WithNothingLeftTheServerIsNotReadyAndSaysUnavailable) {
  Start(false);
  strings_.LoseDevice(0);
  strings_.LoseDevice(1);
  EXPECT_EQ(Call().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(trailers_.reason, "BACKEND_UNAVAILABLE");
  AwaitHealth(server_->channel(), "readiness", kNotServing);
  EXPECT_EQ(HealthOf(server_->channel(), "liveness"), kServing);
}

TEST_F(DeviceTest, AJobOnADeviceThatIsLostIsUnavailable) {
  Start(false);
  strings_.HoldRuns();
  std::thread losing([this] {
    strings_.AwaitRuns(1);
    strings_.LoseDevice(0);
    strings_.LoseDevice(1);
    strings_.Release();
  });
  EXPECT_EQ(Call().error_code(), grpc::StatusCode::UNAVAILABLE);
  losing.join();
  server_->ExpectNothingHeld();
}

}  // namespace
}  // namespace convgrad
