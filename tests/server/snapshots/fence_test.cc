#include "server/snapshots/fence.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/snapshots/failing_files.h"
#include "tests/server/snapshots/memory_files.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

class FenceTest : public testing::Test {
 protected:
  FenceTest() { EXPECT_TRUE(files_.CreateFolder("s").ok()); }

  MemoryFiles files_{/*locks=*/false};
};

TEST_F(FenceTest, CountsServers) {
  for (int64_t number = 1; number < 12; ++number) {
    const auto fence = Fence::Take("s", &files_);
    ASSERT_TRUE(fence.ok()) << fence.status();
    EXPECT_EQ((*fence)->number(), number);
    EXPECT_TRUE((*fence)->Check().ok());
  }
}

TEST_F(FenceTest, StopsTheServerBefore) {
  const auto first = Fence::Take("s", &files_);
  const auto second = Fence::Take("s", &files_);
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status status = (*first)->Check();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("s/fence: found 2, expected 1"));
  EXPECT_TRUE((*second)->Check().ok());
}

TEST_F(FenceTest, StopsIfTheNumberIsGone) {
  const auto fence = Fence::Take("s", &files_);
  ASSERT_TRUE(fence.ok());
  ASSERT_TRUE(files_.Unlink("s/fence").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition((*fence)->Check()));
}

TEST_F(FenceTest, TakesTheLockFirst) {
  MemoryFiles files;
  ASSERT_TRUE(files.CreateFolder("s").ok());
  const auto first = Fence::Take("s", &files);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Fence::Take("s", &files).status()));
  EXPECT_TRUE((*first)->Check().ok());
}

TEST_F(FenceTest, RefusesAnythingButANumber) {
  for (const char* const text :
       {"", "\n", "7", "x\n", "-1\n", "0\n", "7\n8\n", "99999999999999999999\n",
        "9223372036854775807\n", "1073741824\n",
        "1 and more than twenty bytes\n"}) {
    files_.Put("s/fence", text);
    const absl::Status status = Fence::Take("s", &files_).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << text << status;
    EXPECT_THAT(status.message(), HasSubstr("s/fence"));
  }
}

TEST_F(FenceTest, IsNotTakenIfACallFails) {
  int64_t calls = 0;
  for (int64_t failing = 0;; ++failing) {
    FailingFiles files(&files_, [&](int64_t call, const std::string&) {
      return call == failing ? Fault::kError : Fault::kNone;
    });
    const auto fence = Fence::Take("s", &files);
    calls = files.calls();
    if (fence.ok()) break;
    EXPECT_TRUE(absl::IsDataLoss(fence.status())) << failing;
  }
  EXPECT_GT(calls, 8);
}

}  // namespace
}  // namespace convgrad
