#include "server/sessions/change_order.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Time kNever = absl::InfiniteFuture();

absl::Status Busy() {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBusy, "server.memory", "0 bytes free", "1"});
}

// An order that records each decision as "run", "reply TEXT" or "REASON".
class Order {
 public:
  // Brings a change whose call id is `call`.
  uint64_t Arrive(int64_t sequence, const std::string& call, int64_t epoch = 1,
                  int64_t acknowledged = 0, absl::Time deadline = kNever) {
    return order_.Arrive({epoch, sequence, call, acknowledged}, now_,
                         {deadline, Note(call),
                          [this, call] { told_.push_back(call + " early"); }},
                         &notices_);
  }
  uint64_t Await(int64_t number, const std::string& reader) {
    return order_.AwaitNumber(number, now_, {kNever, Note(reader)}, &notices_);
  }
  void Commit(const std::string& reply) {
    order_.Commit(std::make_shared<std::string>(reply), /*reply_bytes=*/10,
                  now_, &notices_);
  }
  // The running change needs no more memory.
  void AdmitNextEarly(int64_t running, int64_t epoch = 1) {
    order_.AdmitNextEarly({epoch, running, "", 0}, &notices_);
  }
  absl::Status BeBusy() { return order_.Fail(Busy(), now_, &notices_); }
  absl::Status Fail(const std::string& why) {
    return order_.Fail(absl::InvalidArgumentError(why), now_, &notices_);
  }
  int64_t Resume(const std::string& who) {
    const int64_t epoch = order_.Resume(&notices_);
    order_.AwaitSettled(Note(who), &notices_);
    return epoch;
  }
  void Close() { order_.Close(absl::NotFoundError("closed"), &notices_); }
  bool Withdraw(uint64_t waiter) { return order_.Withdraw(waiter); }
  void Pass(absl::Duration time) {
    now_ += time;
    order_.Expire(now_, &notices_);
  }

  // Returns the decisions since the last call, in order: "WHO WHAT".
  std::vector<std::string> Told() {
    Tell(std::exchange(notices_, {}));
    return std::exchange(told_, {});
  }
  ChangeOrder* operator->() { return &order_; }
  const std::string& last_message() const { return last_message_; }

 private:
  ChangeOrder::Decided Note(const std::string& who) {
    return [this, who](ChangeOrder::Decision decision) {
      std::string what = "run";
      if (decision.kind == ChangeOrder::Decision::Kind::kRefuse) {
        last_message_ = std::string(decision.why.message());
        const auto detail = DetailOf(decision.why);
        what = detail ? std::string(ReasonName(detail->reason)) : "error";
      } else if (!decision.runs()) {
        what =
            "reply " + *static_cast<const std::string*>(decision.reply.get());
      }
      told_.push_back(absl::StrCat(who, " ", what));
    };
  }

  ChangeOrder order_;
  ChangeOrder::Notices notices_;
  std::vector<std::string> told_;
  std::string last_message_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST(ChangeOrder, RunsInOrderOfNumbers) {
  Order order;
  order.Arrive(3, "c");
  order.Arrive(2, "b");
  EXPECT_THAT(order.Told(), ElementsAre());
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre("b run"));
  order.Commit("B");
  order.Commit("C");
  EXPECT_THAT(order.Told(), ElementsAre("c run"));
  EXPECT_EQ(order->number(), 3);
}

TEST(ChangeOrder, ARepeatGetsTheOneReply) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre("a reply A"));
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a reply A"));
  EXPECT_EQ(order->number(), 1);
}

TEST(ChangeOrder, RepeatsThatWaitRunOnce) {
  Order order;
  order.Arrive(2, "b");
  order.Arrive(2, "b");
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre("b run"));
  order.Commit("B");
  EXPECT_THAT(order.Told(), ElementsAre("b reply B"));
}

TEST(ChangeOrder, RepliesGoWhenTheyAreAcknowledged) {
  Order order;
  order.Arrive(1, "a");
  order.Commit("A");
  order.Arrive(2, "b", 1, /*acknowledged=*/1);
  order.Told();
  EXPECT_EQ(order->reply_bytes(), 0);
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a OUT_OF_ORDER"));
}

TEST(ChangeOrder, ANumberIsOneCalls) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(1, "x");
  EXPECT_THAT(order.Told(), ElementsAre("a run", "x OUT_OF_ORDER"));
  order.Commit("A");
  order.Arrive(1, "x");
  EXPECT_THAT(order.Told(), ElementsAre("x OUT_OF_ORDER"));
  EXPECT_THAT(order.last_message(), HasSubstr("committed by another call"));
  order.Arrive(3, "c");
  order.Arrive(3, "x");
  EXPECT_THAT(order.Told(), ElementsAre("x OUT_OF_ORDER"));
}

TEST(ChangeOrder, TheWindowIsBounded) {
  Order order;
  order.Arrive(1 + ChangeOrder::kWindow, "far");
  order.Arrive(0, "zero");
  order.Arrive(-1, "minus");
  order.Arrive(1, "ahead", 1, /*acknowledged=*/1);
  EXPECT_THAT(order.Told(),
              ElementsAre("far OUT_OF_ORDER", "zero OUT_OF_ORDER",
                          "minus OUT_OF_ORDER", "ahead OUT_OF_ORDER"));
  // The number of unacknowledged replies is bounded as well.
  int64_t n = 1;
  for (; n <= ChangeOrder::kWindow + 1; ++n) {
    order.Arrive(n, absl::StrCat(n));
    EXPECT_THAT(order.Told(), ElementsAre(absl::StrCat(n, " run")));
    order.Commit("");
  }
  order.Arrive(n, "last");
  EXPECT_THAT(order.Told(), ElementsAre("last OUT_OF_ORDER"));
  order.Arrive(n, "last", 1, /*acknowledged=*/1);
  EXPECT_THAT(order.Told(), ElementsAre("last run"));
}

TEST(ChangeOrder, AFailureEndsItsEpoch) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Told();
  EXPECT_EQ(order.Fail("bad dims"), absl::InvalidArgumentError("bad dims"));
  EXPECT_THAT(order.Told(), ElementsAre("b EPOCH_ENDED", "a EPOCH_ENDED"));
  EXPECT_THAT(order.last_message(), HasSubstr("bad dims"));
  // The change is aborted whenever it comes.
  order.Arrive(1, "a");
  order.Arrive(3, "late");
  EXPECT_THAT(order.Told(), ElementsAre("a EPOCH_ENDED", "late EPOCH_ENDED"));
  order.Arrive(1, "a", 2);
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.Commit("A");
  EXPECT_EQ(order->number(), 1);
  // A repeat of a committed change gets its reply in any epoch.
  order.Arrive(1, "a", 1);
  EXPECT_THAT(order.Told(), ElementsAre("a reply A"));
}

TEST(ChangeOrder, OneChangeIsAdmittedEarlyWhileTheOneBeforeItRuns) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Arrive(3, "c");
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.AdmitNextEarly(1);
  order.AdmitNextEarly(1);
  EXPECT_THAT(order.Told(), ElementsAre("b early"));
  order.Commit("A");
  // An earlier AdmitNextEarly doesn't hold for this change.
  order.AdmitNextEarly(1);
  EXPECT_THAT(order.Told(), ElementsAre("b run"));
  order.AdmitNextEarly(2);
  order.Commit("B");
  EXPECT_THAT(order.Told(), ElementsAre("c early", "c run"));
  // The next change may not have arrived.
  order.AdmitNextEarly(3);
  order.Arrive(5, "e");
  EXPECT_THAT(order.Told(), ElementsAre());
  order.Arrive(4, "d");
  EXPECT_THAT(order.Told(), ElementsAre("d early"));
  EXPECT_FALSE(order.Fail("bad dims").ok());
  EXPECT_THAT(order.Told(), ElementsAre("d EPOCH_ENDED", "e EPOCH_ENDED"));
}

TEST(ChangeOrder, ABusyChangeMayComeAgainAndRunsAloneThen) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Arrive(3, "c");
  order.AdmitNextEarly(1);
  order.Told();
  EXPECT_TRUE(IsBusy(order.BeBusy()));
  // The second change has memory that the first one may need.
  EXPECT_THAT(order.Told(), ElementsAre("b BUSY"));
  order.Arrive(2, "b");
  order.Arrive(1, "a");
  order.AdmitNextEarly(1);
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  // A waiting repeat runs next.
  order.Arrive(1, "a");
  EXPECT_TRUE(IsBusy(order.BeBusy()));
  EXPECT_THAT(order.Told(), ElementsAre("a run"));
  order.Commit("A");
  order.AdmitNextEarly(2);
  EXPECT_THAT(order.Told(), ElementsAre("b run", "c early"));
  EXPECT_EQ(order->epoch(), 1);
  // A client that was taken over gets TAKEN_OVER.
  order.Resume("new");
  EXPECT_EQ(DetailOf(order.BeBusy())->reason, Reason::kTakenOver);
}

TEST(ChangeOrder, ResumingTakesOver) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Told();
  EXPECT_EQ(order.Resume("new"), 2);
  EXPECT_THAT(order.Told(), ElementsAre("b TAKEN_OVER"));
  order.Arrive(2, "b");
  // The running change still answers its repeats, of any epoch.
  order.Arrive(1, "a", 2);
  EXPECT_THAT(order.Told(), ElementsAre("b TAKEN_OVER"));
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre("a reply A", "new run"));
  order.Arrive(2, "c", 2);
  EXPECT_THAT(order.Told(), ElementsAre("c run"));
}

TEST(ChangeOrder, AFailureAfterATakeoverLeavesTheNewEpoch) {
  Order order;
  order.Arrive(1, "a");
  order.Resume("new");
  order.Arrive(1, "x", 2);
  order.Arrive(2, "y", 2);
  EXPECT_THAT(order.Told(), ElementsAre("a run", "x OUT_OF_ORDER"));
  // Otherwise its client would continue in the epoch of the client that took
  // over.
  EXPECT_EQ(DetailOf(order.Fail("bad"))->reason, Reason::kTakenOver);
  EXPECT_THAT(order.Told(), ElementsAre("new run"));
  order.Arrive(1, "x", 2);
  EXPECT_THAT(order.Told(), ElementsAre("x run"));
  order.Commit("X");
  EXPECT_THAT(order.Told(), ElementsAre("y run"));
  order.Arrive(2, "z", 3);
  EXPECT_THAT(order.Told(), ElementsAre("z OUT_OF_ORDER"));
}

TEST(ChangeOrder, WaitsTenSecondsForTheMissingOne) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Arrive(4, "d");
  order.Told();
  // While a change runs, however long, none is missing.
  order.Pass(absl::Minutes(1));
  order.Commit("A");
  order.Commit("B");
  EXPECT_THAT(order.Told(), ElementsAre("b run"));
  order.Pass(absl::Seconds(9));
  EXPECT_THAT(order.Told(), ElementsAre());
  order.Pass(absl::Seconds(1));
  EXPECT_THAT(order.Told(), ElementsAre("d OUT_OF_ORDER"));
  EXPECT_THAT(order.last_message(), HasSubstr("no change 3"));
  // The epoch continues.
  order.Arrive(3, "c");
  order.Arrive(4, "d");
  EXPECT_THAT(order.Told(), ElementsAre("c run"));
}

TEST(ChangeOrder, DeadlinesAndWithdrawalsEndWaits) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(2, "b", 1, 0, absl::UnixEpoch() + absl::Seconds(2));
  order.Arrive(1, "a", 1, 0, absl::UnixEpoch() + absl::Seconds(2));
  const uint64_t gone = order.Arrive(3, "c");
  const uint64_t repeat = order.Arrive(1, "a");
  order.Told();
  EXPECT_TRUE(order.Withdraw(gone));
  EXPECT_FALSE(order.Withdraw(gone));
  EXPECT_TRUE(order.Withdraw(repeat));
  order.Pass(absl::Seconds(2));
  EXPECT_THAT(order.Told(), ElementsAre("b DEADLINE", "a DEADLINE"));
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre());
}

TEST(ChangeOrder, ReadsWaitForTheirNumber) {
  Order order;
  order.Await(0, "now");
  order.Await(2, "two");
  order.Await(ChangeOrder::kWindow + 1, "far");
  EXPECT_THAT(order.Told(), ElementsAre("now run", "far OUT_OF_ORDER"));
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Commit("A");
  EXPECT_THAT(order.Told(), ElementsAre("a run", "b run"));
  order.Commit("B");
  EXPECT_THAT(order.Told(), ElementsAre("two run"));
  order.Await(3, "three");
  order.Pass(absl::Seconds(10));
  EXPECT_THAT(order.Told(), ElementsAre("three OUT_OF_ORDER"));
}

TEST(ChangeOrder, ClosingRefusesEverybody) {
  Order order;
  order.Arrive(1, "a");
  order.Arrive(1, "a");
  order.Arrive(2, "b");
  order.Await(2, "reader");
  order.Resume("resumer");
  order.Told();
  order.Close();
  EXPECT_THAT(order.Told(),
              ElementsAre("a error", "reader error", "resumer error"));
  EXPECT_FALSE(order.Fail("too late").ok());
  EXPECT_THAT(order.Told(), ElementsAre());
  // Later calls are refused as well.
  order.Arrive(1, "a", 2);
  order.Await(0, "reader");
  order.Resume("resumer");
  EXPECT_THAT(order.Told(),
              ElementsAre("a error", "reader error", "resumer error"));
}

TEST(ChangeOrder, RepliesAreKeptForAWhileAndCounted) {
  Order order;
  order.Arrive(1, "a");
  order.Commit("A");
  order.Arrive(2, "b");
  order.Commit("B");
  EXPECT_EQ(order->reply_bytes(), 20);
  order.Pass(ChangeOrder::kReplyLifetime - absl::Seconds(1));
  order.Told();
  order.Arrive(1, "a");
  EXPECT_THAT(order.Told(), ElementsAre("a reply A"));
  order.Pass(absl::Seconds(1));
  EXPECT_EQ(order->reply_bytes(), 0);
  // The change is committed and doesn't run again.
  order.Arrive(2, "b");
  EXPECT_THAT(order.Told(), ElementsAre("b NOT_FOUND"));
  EXPECT_NE(order.last_message().find("committed"), std::string::npos);
  EXPECT_EQ(order->number(), 2);
  order.Arrive(3, "c", 1, 2);
  order.Commit("C");
  EXPECT_EQ(order->reply_bytes(), 10);
}

}  // namespace
}  // namespace convgrad
