#include "server/scheduling/plan_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(PlanFile, HasTheLinesOfEachBackend) {
  const auto file = ParsePlanFile(ToHeader(PlanOrigin()) +
                                  "# two\n\nonednn: a = nxc\r\ncuda: b: c = 1\n"
                                  "  onednn: d = any");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->origin.has_value());
  EXPECT_THAT(file->tunings, ElementsAre(Pair("cuda", "b: c = 1\n"),
                                         Pair("onednn", "a = nxc\nd = any\n")));
}

TEST(PlanFile, NeedNotSayWhatItWasTimedOn) {
  const auto file = ParsePlanFile("onednn: a = nxc\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->origin.has_value());
}

TEST(PlanFile, IsRefusedWithALineOfAnotherForm) {
  for (const char* line :
       {"onednn a = nxc", "onednn: a", "a = nxc", "# convgrad-plan 2"}) {
    const auto file = ParsePlanFile(std::string(line) + "\n");
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(line));
  }
}

}  // namespace
}  // namespace convgrad
