#include <string>

#include "client/cpp/command_line/results.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using ::testing::HasSubstr;

TEST(ResultsTextTest, ABackendThatCantRunHasNoVersionAndDescription) {
  v1::GetCapabilitiesResponse response;
  response.add_backends()->set_name("cuda");
  v1::BackendCapabilities* cpu = response.add_backends();
  cpu->set_name("onednn");
  cpu->set_version("3.2.0");
  cpu->set_description("CPU");
  const std::string text = CapabilitiesText(response);
  EXPECT_THAT(text, HasSubstr("\ncuda\n  unavailable: "));
  EXPECT_THAT(text, HasSubstr("\nonednn 3.2.0, CPU\n"));
}

TEST(ResultsTextTest, NamesOverlappingStages) {
  OperationReply reply;
  reply.report.mutable_seconds()->set_total(1);
  reply.report.mutable_seconds()->set_compute(0.75);
  EXPECT_THAT(ReplyText({}, reply),
              HasSubstr("unaccounted  250.000 ms, 25.0 % of the total\n"));
  reply.report.mutable_seconds()->set_receive(0.5);
  EXPECT_THAT(
      ReplyText({}, reply),
      HasSubstr("unaccounted  -250.000 ms, -25.0 % of the total: stages "
                "overlap\n"));
}

}  // namespace
}  // namespace convgrad
