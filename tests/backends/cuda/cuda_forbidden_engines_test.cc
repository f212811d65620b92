#include "backends/cuda/cuda_forbidden_engines.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad::cuda {
namespace {

using testing::Contains;
using testing::Not;

std::vector<std::string> Forbidden(Pass pass, const char* problem) {
  GraphSpec spec;
  spec.pass = pass;
  spec.problem = *Parse(problem);
  return ForbiddenEngines(spec);
}

TEST(ForbiddenEngines, DependOnGroups) {
  EXPECT_THAT(Forbidden(Pass::kForward, "conv2d_n1_c8_o8_i8_k3"),
              Not(Contains("eng22")));
  EXPECT_THAT(Forbidden(Pass::kForward, "conv2d_n1_c8_o8_g2_i8_k3"),
              Contains("eng22"));
  EXPECT_THAT(Forbidden(Pass::kBackwardWeight, "conv2d_n1_c8_o8_g2_i8_k3"),
              Not(Contains("eng22")));
}

TEST(ForbiddenEngines, DependOnStrides) {
  EXPECT_THAT(Forbidden(Pass::kBackwardWeight, "conv2d_n1_c8_o8_i9_k3"),
              Not(Contains("eng70")));
  EXPECT_THAT(Forbidden(Pass::kBackwardWeight, "conv2d_n1_c8_o8_i9_k3_s1x2"),
              Contains("eng70"));
}

TEST(ForbiddenEngines, MayDependOnEither) {
  EXPECT_THAT(Forbidden(Pass::kBackwardData, "conv2d_n1_c8_o8_i9_k3"),
              Not(Contains("eng40")));
  EXPECT_THAT(Forbidden(Pass::kBackwardData, "conv2d_n1_c8_o8_g4_i9_k3"),
              Contains("eng40"));
  EXPECT_THAT(Forbidden(Pass::kBackwardData, "conv2d_n1_c8_o8_i9_k3_s2"),
              Contains("eng40"));
}

}  // namespace
}  // namespace convgrad::cuda
