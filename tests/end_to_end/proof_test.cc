// Tests a server on a machine that computes something wrongly. A puppet around
// the real backend simulates the machine.
#include <iostream>
#include <mutex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/backends/proof/breaking_backend.h"
#include "tests/end_to_end/peers/child_server.h"
#include "tests/end_to_end/peers/health_of.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ProofTest : public testing::Test {
 protected:
  ProofTest() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~ProofTest() override {
    server_.reset();
    spdlog::set_default_logger(before_);
  }

  // Starts a server whose one backend has `breaks`. The server proves it at the
  // start, or when calls need it.
  void Start(std::vector<Break> breaks, bool prove_at_start) {
    std::vector<RegisteredBackend> backends;
    for (RegisteredBackend& entry : MakeBackends()) {
      if (entry.name != "onednn") continue;
      entry.backend = std::make_unique<BreakingBackend>(
          *std::move(entry.backend), std::move(breaks));
      backends.push_back(std::move(entry));
      break;
    }
    Config config = TestConfig();
    config.prove_at_start = prove_at_start;
    server_.emplace(config, std::move(backends));
    AwaitHealth(server_->channel(), "readiness", kServing);
  }

  // Stops the server, which writes to the log, and returns the log.
  std::string StopAndReadLog() {
    server_.reset();
    return log_.str();
  }

  std::vector<std::string> FailedProofs() {
    grpc::ClientContext context;
    v1::GetCapabilitiesResponse response;
    const grpc::Status status =
        server_->stub().GetCapabilities(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    const auto& failed = response.backends(0).failed_proofs();
    return {failed.begin(), failed.end()};
  }

  std::string MetricLines() {
    std::string lines;
    std::istringstream text(server_->server().MetricsText());
    for (std::string line; std::getline(text, line);) {
      if (absl::StrContains(line, "proofs") && line[0] != '#') {
        absl::StrAppend(&lines, line, "\n");
      }
    }
    return lines;
  }

  grpc::Status Call(const v1::ConvBackwardRequest& request = SeedBackward()) {
    grpc::ClientContext context;
    grpc::Status status =
        server_->stub().ConvBackward(&context, request, &response_);
    trailers_ = TrailersOf(context);
    return status;
  }

  std::optional<TestServer> server_;
  v1::ConvBackwardResponse response_;
  Trailers trailers_;

 private:
  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream log_;
};

TEST_F(ProofTest, ASoundMachineFailsNothing) {
  Start({}, true);
  EXPECT_EQ(HealthOf(server_->channel(), "proof"), kServing);
  EXPECT_THAT(FailedProofs(), IsEmpty());
  EXPECT_THAT(
      MetricLines(),
      AllOf(HasSubstr("convgrad_failed_proofs{backend=\"onednn\"} 0\n"),
            HasSubstr(
                "convgrad_proofs_total{backend=\"onednn\",outcome=\"failed\"} "
                "0\n"),
            Not(HasSubstr("outcome=\"passed\"} 0\n"))));
  EXPECT_TRUE(Call().ok());
  EXPECT_THAT(StopAndReadLog(), AllOf(HasSubstr("onednn: proved "),
                                      Not(HasSubstr("failed proof"))));
}

struct Sample {
  const char* name;
  Break broken;
  std::string phrase;  // One of the reported phrases.
};

std::ostream& operator<<(std::ostream& out, const Sample& sample) {
  return out << sample.name;
}

class BreakageTest : public ProofTest,
                     public testing::WithParamInterface<Sample> {};

TEST_P(BreakageTest, IsToldInLogCapabilitiesHealthAndMetrics) {
  Start({GetParam().broken}, true);
  EXPECT_EQ(HealthOf(server_->channel(), "proof"), kNotServing);
  EXPECT_EQ(HealthOf(server_->channel(), "readiness"), kServing);
  const std::vector<std::string> failed = FailedProofs();
  EXPECT_THAT(failed, testing::Contains(GetParam().phrase));
  const std::string metrics = MetricLines();
  EXPECT_THAT(metrics, Not(HasSubstr("outcome=\"failed\"} 0\n")));
  EXPECT_THAT(metrics, HasSubstr(absl::StrCat(
                           "convgrad_failed_proofs{backend=\"onednn\"} ",
                           failed.size(), "\n")));
  std::cout << "capabilities, failed proofs:\n";
  for (const std::string& phrase : failed) std::cout << "  " << phrase << "\n";
  std::cout << "health: proof NOT_SERVING, readiness SERVING\nmetrics:\n"
            << metrics;
  const std::string log = StopAndReadLog();
  EXPECT_THAT(log, HasSubstr("[error] failed proof of " + GetParam().phrase));
  std::cout << "log:\n" << log;
}

INSTANTIATE_TEST_SUITE_P(
    All, BreakageTest,
    testing::Values(
        Sample{"SwappedTap",
               {Breakage::kSwappedTap, DataType::kF32},
               "f32 output in NCX/OIX: refused"},
        Sample{"DroppedResidual",
               {Breakage::kDroppedResidual, DataType::kBF16},
               "bf16 output with bias and residual in NCX/OIX: by way of f32"},
        Sample{"F16AsBF16",
               {Breakage::kF16AsBF16, DataType::kF16},
               "f16 output in NCX/OIX: by way of f32"},
        Sample{"WrongBiasSum",
               {Breakage::kWrongBiasSum, DataType::kBF16, true},
               "bf16 grad_bias in NCX: refused"},
        Sample{"ShiftedLane",
               {Breakage::kShiftedLane, DataType::kBF16},
               "bf16 output in NXC/OXI: by way of f32"}),
    [](const auto& info) { return info.param.name; });

TEST_F(ProofTest, ARefusedFamilyIsFailedPrecondition) {
  Start({{Breakage::kSwappedTap, DataType::kF32}}, false);
  EXPECT_EQ(HealthOf(server_->channel(), "proof"), kServing);
  // The first call finds the failure when it plans; the second call knows it.
  for (int i = 0; i < 2; ++i) {
    const grpc::Status status = Call();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(trailers_.reason, "BACKEND_UNAVAILABLE");
    EXPECT_EQ(trailers_.field, "options.backend");
    EXPECT_THAT(trailers_.found,
                HasSubstr("proof on this machine for f32 grad_input"));
  }
  EXPECT_EQ(HealthOf(server_->channel(), "proof"), kNotServing);
  EXPECT_THAT(FailedProofs(),
              ElementsAre("f32 grad_input in OIX/NCX: refused"));
  // This request doesn't use the wrong tap.
  v1::ConvBackwardRequest request = SeedBackward();
  request.mutable_operation()->mutable_results()->DeleteSubrange(0, 1);
  EXPECT_TRUE(Call(request).ok());
  EXPECT_THAT(StopAndReadLog(), HasSubstr("failed proof of f32 grad_input"));
}

TEST(SelfTest, PrintsATableAndServesNothing) {
  const Exit passed = RunServer({"--selftest"});
  EXPECT_EQ(passed.code, 0) << passed.output;
  EXPECT_THAT(passed.output, HasSubstr("backward NXC/OXI"));
  EXPECT_THAT(passed.output, HasSubstr(" ways: "));
  EXPECT_THAT(passed.output, Not(HasSubstr("REFUSED")));
  EXPECT_THAT(passed.output, Not(HasSubstr("listening")));
  EXPECT_EQ(RunServer({"--selftest", "--backends=nothing"}).code, 2);
}

}  // namespace
}  // namespace convgrad
