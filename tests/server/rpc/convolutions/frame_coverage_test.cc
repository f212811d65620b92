#include "server/rpc/convolutions/frame_coverage.h"

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(FrameCoverageTest, IsCompleteWhenEachByteCameOnceInAnyOrder) {
  FrameCoverage coverage({100, 200});
  EXPECT_FALSE(coverage.complete());
  EXPECT_TRUE(coverage.Add({150, 200}, "input").ok());
  EXPECT_TRUE(coverage.Add({100, 120}, "input").ok());
  EXPECT_EQ(coverage.received_bytes(), 70);
  EXPECT_FALSE(coverage.complete());
  EXPECT_TRUE(coverage.Add({120, 150}, "input").ok());
  EXPECT_TRUE(coverage.complete());
}

TEST(FrameCoverageTest, RefusesEachKindOfOverlap) {
  for (const ByteRange& again :
       {ByteRange{20, 40}, ByteRange{25, 30}, ByteRange{10, 21},
        ByteRange{39, 50}, ByteRange{10, 50}}) {
    FrameCoverage coverage({0, 100});
    ASSERT_TRUE(coverage.Add({20, 40}, "input").ok());
    const absl::Status status = coverage.Add(again, "input");
    EXPECT_EQ(DetailOf(status)->reason, Reason::kDuplicate)
        << again.begin << " to " << again.end;
  }
}

TEST(FrameCoverageTest, NothingExpectedIsComplete) {
  EXPECT_TRUE(FrameCoverage().complete());
}

TEST(FrameCoverageTest, RefusesMorePiecesThanItKeeps) {
  FrameCoverage coverage({0, 1'000'000});
  absl::Status status;
  int64_t pieces = 0;
  for (; status.ok(); ++pieces) {
    status = coverage.Add({2 * pieces, 2 * pieces + 1}, "input");
  }
  EXPECT_EQ(pieces, static_cast<int64_t>(FrameCoverage::kMaxPieces) + 1);
  EXPECT_EQ(DetailOf(status)->reason, Reason::kLimitExceeded);
}

}  // namespace
}  // namespace convgrad
