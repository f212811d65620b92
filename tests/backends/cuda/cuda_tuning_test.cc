// The choice alone: nothing is timed here.
#include "backends/cuda/cuda_tuning.h"

#include <map>

#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

absl::StatusOr<std::string> FastestOf(
    const std::map<std::string, absl::StatusOr<absl::Duration>>& times,
    const std::vector<std::string>& engines) {
  return FastestEngine(
      engines, [&](const std::string& engine) { return times.at(engine); });
}

TEST(FastestEngine, IsTheOneThatTookLeast) {
  EXPECT_EQ(*FastestOf({{"a", absl::Milliseconds(3)},
                        {"b", absl::Milliseconds(1)},
                        {"c", absl::Milliseconds(2)}},
                       {"a", "b", "c"}),
            "b");
}

TEST(FastestEngine, StaysTheHeuristicsBestWithinNoise) {
  EXPECT_EQ(*FastestOf({{"a", absl::Microseconds(1000)},
                        {"b", absl::Microseconds(990)}},
                       {"a", "b"}),
            "a");
}

TEST(FastestEngine, IsNoneThatFails) {
  const absl::Status broken = absl::InternalError("broken");
  EXPECT_EQ(
      *FastestOf({{"a", broken}, {"b", absl::Milliseconds(1)}}, {"a", "b"}),
      "b");
  EXPECT_EQ(FastestOf({{"a", broken}}, {"a"}).status(), broken);
  EXPECT_EQ(FastestOf({}, {}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(FastestEngine, EndsWithTheDevice) {
  EXPECT_EQ(FastestOf({{"a", absl::Milliseconds(1)},
                       {"b", absl::UnavailableError("lost")}},
                      {"a", "b", "c"})
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace convgrad::cuda
