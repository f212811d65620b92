#include "server/rpc/transport/token_table.h"

#include "absl/strings/str_cat.h"
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
  EXPECT_EQ(table->Find("first-first-first")->role, ClientRole::kInfer);
  EXPECT_EQ(table->Find("second-second-second")->role, ClientRole::kTrain);
  EXPECT_EQ(table->Find("third-third-third")->name, "trainer");
  EXPECT_EQ(table->Find("third-third-third")->role, ClientRole::kAdmin);
  for (const char* other : {"", "first", "first-first-first-", "serving"}) {
    EXPECT_FALSE(table->Find(other).has_value()) << other;
  }
}

// Nobody could tell which of them calls, and with which role.
TEST(TokenTable, RefusesATokenOfTwoClients) {
  const auto table = TokenTable::Parse(
      "serving infer first-first-first\n\ntrainer admin first-first-first");
  const auto detail = DetailOf(table.status());
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->field, "--token_file line 3");
  EXPECT_EQ(detail->found, "the token of line 1");
}

// Prometheus refuses a whole page with a label that isn't UTF-8.
TEST(TokenTable, RefusesANameThatIsNoText) {
  for (const char* name : {"\xff", "a\x01"}) {
    const auto table =
        TokenTable::Parse(absl::StrCat(name, " infer first-first-first"));
    ASSERT_TRUE(DetailOf(table.status())) << name;
    EXPECT_EQ(DetailOf(table.status())->field, "--token_file line 1");
  }
}

TEST(TokenTable, AnEmptyOneHasNobody) {
  const auto table = TokenTable::Parse("");
  ASSERT_TRUE(table.ok());
  EXPECT_FALSE(table->Find("").has_value());
}

}  // namespace
}  // namespace convgrad
