#include "server/scheduling/routing.h"

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr Router::Limits kLimits = {.max_macs = 1000, .max_reference_macs = 10};

class RouterTest : public testing::Test {
 protected:
  void Add(absl::string_view name, absl::Status support = absl::OkStatus()) {
    PuppetTraits traits;
    traits.support = std::move(support);
    backends_.push_back(RegisteredPuppet(name, &strings_, traits));
  }
  void AddBroken(absl::string_view name) {
    backends_.push_back({name, absl::InternalError("no device")});
  }
  absl::StatusOr<std::string> Route(absl::string_view name,
                                    int64_t channels = 1) {
    const Router router(backends_, kLimits);
    ASSIGN_OR_RETURN(const Router::Choice choice,
                     router.Route(TinyOperation(channels), {name, {}}));
    EXPECT_TRUE(choice.predictions.empty());
    return std::string(choice.backend->name());
  }

  PuppetStrings strings_;
  std::vector<RegisteredBackend> backends_;
};

const absl::Status& Unsupported() {
  static const auto* const kStatus = new absl::Status(
      MakeError(absl::StatusCode::kUnimplemented,
                {Reason::kUnsupported, "dtype", "f16", "f32"}));
  return *kStatus;
}

TEST_F(RouterTest, AutoTakesTheFirstThatSupportsIt) {
  AddBroken("cuda");
  Add("onednn", Unsupported());
  Add("other");
  Add("reference");
  EXPECT_EQ(*Route(""), "other");
}

TEST_F(RouterTest, AutoNeverTakesTheReferenceBesideAnother) {
  Add("onednn", Unsupported());
  Add("reference");
  EXPECT_EQ(Route("").status(), Unsupported());
}

TEST_F(RouterTest, AutoTakesTheReferenceIfNothingElseRunsHere) {
  AddBroken("onednn");
  Add("reference");
  EXPECT_EQ(*Route("", 10), "reference");
  const absl::Status refused = Route("", 11).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RouterTest, NamedBackendIsTakenAsItIs) {
  Add("onednn");
  Add("other", Unsupported());
  Add("reference");
  EXPECT_EQ(*Route("onednn"), "onednn");
  EXPECT_EQ(*Route("reference"), "reference");
  EXPECT_EQ(Route("other").status(), Unsupported());
}

TEST_F(RouterTest, NamedBackendThatCannotRunIsAFailedPrecondition) {
  AddBroken("cuda");
  Add("reference");
  const absl::Status broken = Route("cuda").status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(broken)->reason, Reason::kBackendUnavailable);
  EXPECT_NE(broken.message().find("no device"), absl::string_view::npos);
  const absl::Status missing = Route("onednn").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(missing.message().find("compiled"), absl::string_view::npos);
}

TEST_F(RouterTest, ReferenceHasALimitOfItsOwn) {
  Add("onednn");
  Add("reference");
  EXPECT_TRUE(Route("reference", 10).ok());
  const absl::Status refused = Route("reference", 11).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(refused)->reason, Reason::kLimitExceeded);
}

TEST_F(RouterTest, RefusesMoreWorkThanAllowed) {
  const Router router(backends_, kLimits);
  EXPECT_TRUE(router.CheckLimits(TinyOperation(1000)).ok());
  const absl::Status refused = router.CheckLimits(TinyOperation(1001));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused)->reason, Reason::kLimitExceeded);
}

TEST_F(RouterTest, SaysSoIfThereIsNoBackend) {
  EXPECT_EQ(Route("").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace convgrad
