#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/sessions/change_order.h"

namespace convgrad {
namespace {

using ::testing::ElementsAre;

ChangeOrder::Reply ReplyOf(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

class RestoredOrderTest : public ::testing::Test {
 protected:
  RestoredOrderTest() {
    // Change 3 is acknowledged, and the reply of change 4 is no longer kept.
    order_.Restore(5, {.newest = 100, .first = 40, .resumed_by = "mine"},
                   {{4, "four", nullptr, 0}, {5, "five", ReplyOf("5"), 7}},
                   absl::UnixEpoch());
  }

  // Returns the decision about the change: "run", "reply TEXT" or its reason.
  std::string Arrive(int64_t epoch, int64_t sequence, const std::string& call) {
    return Decide([&](ChangeOrder::Caller caller) {
      order_.Arrive({epoch, sequence, call, 0}, absl::UnixEpoch(),
                    std::move(caller), &notices_);
    });
  }
  std::string Await(int64_t number) {
    return Decide([&](ChangeOrder::Caller caller) {
      order_.AwaitNumber(number, absl::UnixEpoch(), std::move(caller),
                         &notices_);
    });
  }
  template <typename Ask>
  std::string Decide(const Ask& ask) {
    std::string told = "waits";
    ask({absl::InfiniteFuture(), [&](const ChangeOrder::Decision& decision) {
           told = "run";
           if (decision.kind == ChangeOrder::Decision::Kind::kRepeat) {
             told = absl::StrCat("reply ", *static_cast<const std::string*>(
                                               decision.reply.get()));
           }
           if (!decision.why.ok()) {
             told = std::string(ReasonName(DetailOf(decision.why)->reason));
           }
         }});
    Tell(std::exchange(notices_, {}));
    return told;
  }

  ChangeOrder order_;
  ChangeOrder::Notices notices_;
};

TEST_F(RestoredOrderTest, ContinuesWithNumberAndReplies) {
  EXPECT_EQ(order_.number(), 5);
  EXPECT_EQ(order_.reply_bytes(), 7);
  EXPECT_EQ(Arrive(1, 5, "five"), "reply 5");
  EXPECT_EQ(Arrive(1, 4, "four"), "NOT_FOUND");
  EXPECT_EQ(order_.Resume(&notices_), 101);
  EXPECT_EQ(Arrive(101, 6, "six"), "run");
}

TEST_F(RestoredOrderTest, RefusesEarlierEpochsUntilItIsResumed) {
  EXPECT_EQ(Arrive(40, 6, "six"), "RESTORED");
  EXPECT_EQ(Arrive(99, 6, "six"), "RESTORED");
  EXPECT_EQ(Await(6), "RESTORED");
  EXPECT_EQ(Await(5), "run");
  order_.Resume(&notices_);
  EXPECT_EQ(Arrive(1, 6, "six"), "TAKEN_OVER");
  EXPECT_EQ(Arrive(100, 6, "six"), "TAKEN_OVER");
  EXPECT_EQ(Await(6), "waits");
}

TEST_F(RestoredOrderTest, KnowsWhoHadItBefore) {
  EXPECT_EQ(Arrive(39, 6, "six"), "TAKEN_OVER");
  EXPECT_EQ(DetailOf(order_.CheckHolder(39))->reason, Reason::kTakenOver);
  EXPECT_EQ(DetailOf(order_.CheckHolder(39, "other"))->reason,
            Reason::kTakenOver);
  // The repeat of the call that resumed the session.
  EXPECT_TRUE(order_.CheckHolder(39, "mine").ok());
  EXPECT_TRUE(order_.CheckHolder(40).ok());
  order_.Resume(&notices_, "next");
  EXPECT_EQ(DetailOf(order_.CheckHolder(99, "mine"))->reason,
            Reason::kTakenOver);
  EXPECT_TRUE(order_.CheckHolder(99, "next").ok());
  EXPECT_EQ(order_.epochs().first, 101);
}

TEST_F(RestoredOrderTest, GivesWhatItRestores) {
  std::vector<std::string> kept;
  for (const ChangeOrder::Unacknowledged& change : order_.unacknowledged()) {
    kept.push_back(absl::StrCat(change.number, change.call_id,
                                change.reply == nullptr ? " gone" : "", " ",
                                change.reply_bytes));
  }
  EXPECT_THAT(kept, ElementsAre("4four gone 0", "5five 7"));
}

}  // namespace
}  // namespace convgrad
