#include "server/scheduling/plan_origin.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

PlanOrigin Genoa() {
  return {"AuthenticAMD family 25 model 17", "AMD EPYC 9R14 96-Core Processor",
          "avx512_core_bf16", 2, "onednn 3.2.0"};
}

constexpr char kHeader[] =
    "# convgrad-plan 1\n"
    "# cpu: AuthenticAMD family 25 model 17\n"
    "# cpu name: AMD EPYC 9R14 96-Core Processor\n"
    "# isa: avx512_core_bf16\n"
    "# threads: 2\n"
    "# library: onednn 3.2.0\n";

TEST(PlanOrigin, IsWrittenAsTheFormatSays) {
  EXPECT_EQ(ToHeader(Genoa()), kHeader);
}

TEST(PlanOrigin, IsReadAsItWasWritten) {
  for (const PlanOrigin& origin : {Genoa(), PlanOrigin()}) {
    const auto parsed = ParseHeader(ToHeader(origin) + "# more\nonednn: a = b");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_TRUE(parsed->has_value());
    EXPECT_EQ(ToHeader(**parsed), ToHeader(origin));
  }
}

TEST(PlanOrigin, MayHaveOtherLineEnds) {
  const auto parsed =
      ParseHeader(absl::StrReplaceAll(kHeader, {{"\n", "\r\n"}}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ToHeader(**parsed), kHeader);
}

TEST(PlanOrigin, IsNoneWhereTheFileDoesNotBeginWithIt) {
  for (const char* text :
       {"", "\n", "# convgrad 0.1.0: 2 problems timed\n", "onednn: a = b\n"}) {
    const auto parsed = ParseHeader(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_FALSE(parsed->has_value()) << text;
  }
  EXPECT_FALSE(ParseHeader(std::string("\n") + kHeader)->has_value());
}

TEST(PlanOrigin, IsRefusedInAnyOtherForm) {
  const std::pair<const char*, const char*> kBreakages[] = {
      {"convgrad-plan 1", "convgrad-plan 2"},
      {"# cpu: AuthenticAMD family 25 model 17\n", ""},
      {"# isa: avx512_core_bf16", "# isa:"},
      {"# isa", "# instructions"},
      {"threads: 2", "threads: two"},
      {"threads: 2", "threads: 0"},
      {"\n# library: onednn 3.2.0\n", ""},
  };
  for (const auto& breakage : kBreakages) {
    const auto parsed = ParseHeader(absl::StrReplaceAll(kHeader, {breakage}));
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << breakage.second;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("expected"));
  }
}

TEST(PlanOrigin, IsOfTheSameKindWhateverTheName) {
  PlanOrigin other = Genoa();
  other.cpu_name = "AMD EPYC";
  EXPECT_TRUE(IsSameKind(Genoa(), other));
}

TEST(PlanOrigin, IsOfAnotherKindWhereAnythingElseDiffers) {
  PlanOrigin bergamo = Genoa();
  bergamo.cpu = "AuthenticAMD family 25 model 160";
  EXPECT_FALSE(IsSameKind(Genoa(), bergamo));
  PlanOrigin avx2 = Genoa();
  avx2.isa = "avx2";
  EXPECT_FALSE(IsSameKind(Genoa(), avx2));
  PlanOrigin eight = Genoa();
  eight.threads = 8;
  EXPECT_FALSE(IsSameKind(Genoa(), eight));
  PlanOrigin later = Genoa();
  later.library = "onednn 3.3.0";
  EXPECT_FALSE(IsSameKind(Genoa(), later));
}

TEST(PlanOrigin, IsDescribedInOneLine) {
  EXPECT_EQ(Describe(Genoa()),
            "AuthenticAMD family 25 model 17, avx512_core_bf16, 2 threads, "
            "onednn 3.2.0");
}

}  // namespace
}  // namespace convgrad
