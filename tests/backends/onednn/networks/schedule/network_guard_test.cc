// Tests the conditions under which a fused forward is repeated without fusing.
#include "backends/onednn/networks/schedule/network_guard.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/backends/onednn/networks/schedule/built_network.h"

namespace convgrad::onednn {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t FiniteCheck(const std::vector<float>& values) {
  Schedule schedule;
  const BufferId buffer =
      schedule.AddBuffer(std::ssize(values) * int64_t{sizeof(float)});
  const BufferId condition = AddFiniteCheck(DataType::kF32, buffer, &schedule);
  BuffersOf buffers(schedule);
  buffers.Set(buffer, values);
  buffers.Run();
  return buffers.Get<int32_t>(condition)[0];
}

int32_t RangeCheck(double range) {
  Schedule schedule;
  const BufferId buffer = schedule.AddBuffer(sizeof(double));
  const BufferId condition = AddRangeCheck(buffer, &schedule);
  BuffersOf buffers(schedule);
  buffers.Set<double>(buffer, {range});
  buffers.Run();
  return buffers.Get<int32_t>(condition)[0];
}

int32_t AnyOf(const std::vector<int32_t>& values) {
  Schedule schedule;
  std::vector<BufferId> conditions;
  for (size_t i = 0; i < values.size(); ++i) {
    conditions.push_back(schedule.AddBuffer(sizeof(int32_t)));
  }
  const BufferId result = AddAnyOf(conditions, &schedule);
  BuffersOf buffers(schedule);
  for (size_t i = 0; i < values.size(); ++i) {
    buffers.Set<int32_t>(conditions[i], {values[i]});
  }
  buffers.Run();
  return buffers.Get<int32_t>(result)[0];
}

TEST(FiniteCheck, FindsOneElementThatIsNotFinite) {
  std::vector<float> values(1000, std::numeric_limits<float>::max());
  EXPECT_EQ(FiniteCheck(values), 0);
  for (const float bad : {kInf, -kInf, kNan}) {
    values[997] = bad;
    EXPECT_EQ(FiniteCheck(values), 1) << bad;
  }
}

TEST(RangeCheck, HoldsFromFarBelowTheLargestFloatOn) {
  constexpr double kLimit = std::numeric_limits<float>::max() * 0x1p-20;
  EXPECT_EQ(RangeCheck(1), 0);
  EXPECT_EQ(RangeCheck(kLimit * 0.999), 0);
  EXPECT_EQ(RangeCheck(kLimit), 1);
  EXPECT_EQ(RangeCheck(kInf), 1);
  EXPECT_EQ(RangeCheck(kNan), 1);
}

TEST(AnyOf, HoldsIfOneConditionDoes) {
  EXPECT_EQ(AnyOf({}), 0);
  EXPECT_EQ(AnyOf({0, 0, 0}), 0);
  EXPECT_EQ(AnyOf({0, 1, 0}), 1);
  EXPECT_EQ(AnyOf({0, 0, -1}), 1);
}

TEST(AreSafeFactors, ScalesAreNeitherHugeNorTinyAndShiftsAreFinite) {
  EXPECT_TRUE(AreSafeFactors({}, {}));
  EXPECT_TRUE(AreSafeFactors(std::vector<float>{0, 1, -0x1p40F, 0x1p-40F},
                             std::vector<float>{0, -1e38F}));
  for (const float bad : {0x1p41F, -0x1p41F, 0x1p-41F, kInf, kNan}) {
    EXPECT_FALSE(AreSafeFactors(std::vector<float>{1, bad}, {})) << bad;
  }
  for (const float bad : {kInf, -kInf, kNan}) {
    EXPECT_FALSE(AreSafeFactors({}, std::vector<float>{0, bad})) << bad;
  }
}

}  // namespace
}  // namespace convgrad::onednn
