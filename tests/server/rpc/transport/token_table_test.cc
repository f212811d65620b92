#include "server/rpc/transport/token_table.h"

#include "absl/strings/match.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

TEST(TokenTable, FindsWhoseTokenItIs) {
  const auto table = TokenTable::Parse(
      "# clients\n\n  serving\tinfer  first-first-first \r\n"
      "trainer train second-second-second\n"
      "trainer admin third-third-third");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Find("first-first-first")->name, "serving");
  EXPECT_EQ(table->Find("first-first-first")->role, Role::kInfer);
  EXPECT_EQ(table->Find("second-second-second")->role, Role::kTrain);
  EXPECT_EQ(table->Find("third-third-third")->name, "trainer");
  EXPECT_EQ(table->Find("third-third-third")->role, Role::kAdmin);
  for (const char* other : {"", "first", "first-first-first-", "serving"}) {
    EXPECT_FALSE(table->Find(other).has_value()) << other;
  }
}

TEST(TokenTable, AnEmptyOneHasNobody) {
  const auto table = TokenTable::Parse("");
  ASSERT_TRUE(table.ok());
  EXPECT_FALSE(table->Find("").has_value());
}

}  // namespace
}  // namespace convgrad
