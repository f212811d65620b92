#include "backends/core/program/philox.h"

#include <set>

#include "backends/core/program/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

// The numbers are from kat_vectors of Random123, philox4x32-10.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, SeedRunStepAndGroupEachGiveOtherWords) {
  static_assert(kMaxProgramSteps <= 1 << 14);
  constexpr int64_t kLarge = int64_t{1} << 40;
  std::set<PhiloxBlock> blocks;
  for (const int64_t seed : {int64_t{0}, int64_t{1}, kLarge}) {
    for (const int64_t run : {int64_t{0}, int64_t{1}, kLarge}) {
      for (const int64_t step : {0, 1, 9999}) {
        for (const int64_t group : {int64_t{0}, int64_t{1}, kLarge}) {
          blocks.insert(DropoutWords({seed, run}, step, group));
        }
      }
    }
  }
  EXPECT_EQ(blocks.size(), 81);
}

TEST(PhiloxTest, ThresholdsAreExactAtTheEnds) {
  EXPECT_EQ(DropoutThreshold(0), 0);
  EXPECT_EQ(DropoutThreshold(0.5), uint64_t{1} << 31);
  EXPECT_EQ(DropoutThreshold(1), uint64_t{1} << 32);
}

}  // namespace
}  // namespace convgrad
