// Tests how a session's changes are numbered, repeated and given up, with a
// service that answers by each test's script.
#include "client/cpp/sessions/change_sender.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp/scripted_sessions.h"
#include "tests/client/cpp/stand_in_clock.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

const Answer kLost = {grpc::StatusCode::UNAVAILABLE};

Answer Committed(int64_t number) { return {grpc::StatusCode::OK, "", number}; }
Answer Refused(int64_t number) {
  return {grpc::StatusCode::INVALID_ARGUMENT, "OUT_OF_RANGE", number};
}
Answer EpochEnded(int64_t number) {
  return {grpc::StatusCode::ABORTED, "EPOCH_ENDED", number};
}

class ChangeSenderTest : public testing::Test {
 protected:
  ChangeSenderTest() {
    opened_.set_session_id("sixteen bytes id");
    opened_.set_epoch(7);
    opened_.set_window(8);
    opened_.set_lease_seconds(60);
    retries_.initial = absl::Milliseconds(1);
    retries_.max_attempts = 5;
  }
  ChangeSender& sender() {
    if (sender_ == nullptr) {
      sender_ =
          std::make_unique<ChangeSender>(opened_, retries_, SendWith("void"));
    }
    return *sender_;
  }

  ChangeSender::Send SendWith(const std::string& name) {
    return [this, name](grpc::ClientContext* context) {
      return sessions_.Send(name, context);
    };
  }

  absl::Status Change() {
    return sender().Change(absl::InfiniteFuture(), SendWith("")).status();
  }
  absl::Status Read() {
    return sender().Read(absl::InfiniteFuture(), SendWith("")).status();
  }
  std::shared_ptr<ChangeSender::Pending> Begin(
      ChangeSender::Instead instead = nullptr) {
    auto change = sender().Begin(absl::InfiniteFuture(), std::move(instead));
    EXPECT_TRUE(change.ok()) << change.status();
    return *change;
  }
  // Starts a thread that finishes the change.
  std::future<absl::Status> Finish(
      std::shared_ptr<ChangeSender::Pending> change) {
    return std::async(std::launch::async, [this, change = std::move(change)] {
      return sender().Finish(change, SendWith("")).status();
    });
  }

  // Returns "EPOCH/SEQUENCE" of each attempt. "void" precedes attempts that
  // stand for a change that was given up.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    for (const Attempt& attempt : sessions_.attempts()) {
      sent.push_back(absl::StrCat(attempt.is_void ? "void " : "", attempt.epoch,
                                  "/", attempt.sequence));
    }
    return sent;
  }

  v1::SessionResponse opened_;
  RetryPolicy retries_;
  ScriptedSessions sessions_;
  std::unique_ptr<ChangeSender> sender_;
};

TEST_F(ChangeSenderTest, NumbersChangesAndAcknowledgesReplies) {
  opened_.set_number(4);
  sessions_.Follow([](const Attempt& a) { return Committed(a.sequence); });
  EXPECT_TRUE(Change().ok());
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/5", "7/6"));
  EXPECT_EQ(sender().number(), 6);
  const std::vector<Attempt> attempts = sessions_.attempts();
  EXPECT_EQ(attempts[0].acknowledged, 4);
  EXPECT_EQ(attempts[1].acknowledged, 5);
  EXPECT_NE(attempts[0].call_id, attempts[1].call_id);
  EXPECT_EQ(attempts[0].call_id.size(), 16u);
}

TEST_F(ChangeSenderTest, ALostAnswerIsAskedForAgain) {
  sessions_.Follow([this](const Attempt&) {
    return sessions_.attempts().size() < 3 ? kLost : Committed(1);
  });
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/1", "7/1", "7/1"));
  for (const Attempt& attempt : sessions_.attempts()) {
    EXPECT_EQ(attempt.call_id, sessions_.attempts()[0].call_id);
  }
}

TEST_F(ChangeSenderTest, AReplyThatIsNoLongerKeptMeansCommitted) {
  sessions_.Follow([](const Attempt&) {
    return Answer{grpc::StatusCode::DATA_LOSS, "NOT_FOUND", 1};
  });
  EXPECT_TRUE(absl::IsDataLoss(Change()));
  EXPECT_EQ(sender().number(), 1);
}

TEST_F(ChangeSenderTest, ARefusedChangeFreesItsNumberInTheNextEpoch) {
  sessions_.Follow([](const Attempt& a) {
    return a.epoch == 7 ? Refused(0) : Committed(a.sequence);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(Change()));
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/1", "8/1"));
}

TEST_F(ChangeSenderTest, ChangesBehindARefusedOneFailWithIt) {
  sessions_.Follow([](const Attempt& a) {
    if (a.epoch == 8) return Committed(a.sequence);
    return a.sequence == 1 ? Refused(0) : EpochEnded(0);
  });
  auto first = Begin();
  auto second = Begin();
  auto second_ends = Finish(second);
  sessions_.AwaitAttempts(1);
  auto first_ends = Finish(first);
  EXPECT_TRUE(absl::IsInvalidArgument(first_ends.get()));
  const absl::Status why = second_ends.get();
  EXPECT_TRUE(absl::IsAborted(why)) << why;
  EXPECT_EQ(ReasonOf(why), Reason::kEpochEnded);
  EXPECT_THAT(Sent(), ElementsAre("7/2", "7/1"));
  EXPECT_TRUE(Change().ok());
  EXPECT_EQ(Sent().back(), "8/1");
  EXPECT_EQ(sender().number(), 1);
}

TEST_F(ChangeSenderTest, ChangesBeforeARefusedOneAreCommitted) {
  sessions_.Follow([this](const Attempt& a) {
    if (a.sequence == 2 && a.epoch == 7) {
      return sessions_.attempts().size() < 2 ? kLost : Refused(1);
    }
    return Committed(a.sequence);
  });
  auto first = Begin();
  auto second_ends = Finish(Begin());
  sessions_.AwaitAttempts(1);
  EXPECT_TRUE(Finish(first).get().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(second_ends.get()));
  EXPECT_TRUE(Change().ok());
  EXPECT_EQ(Sent().back(), "8/2");
}

TEST_F(ChangeSenderTest, ABusyServerIsAskedAgainInTheNextEpoch) {
  sessions_.Follow([](const Attempt& a) {
    if (a.epoch == 8) return Committed(a.sequence);
    return Answer{grpc::StatusCode::RESOURCE_EXHAUSTED, "BUSY", 0, "1"};
  });
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/1", "8/1"));
  EXPECT_NE(sessions_.attempts()[0].call_id, sessions_.attempts()[1].call_id);
}

TEST_F(ChangeSenderTest, ARefusedChangeMayBeReplacedByAnother) {
  sessions_.Follow([](const Attempt& a) {
    return a.epoch == 7 ? Refused(0) : Committed(a.sequence);
  });
  absl::Status told;
  auto change = Begin([&told](const absl::Status& refusal) {
    told = refusal;
    return true;
  });
  EXPECT_TRUE(Finish(change).get().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(told)) << told;
  EXPECT_THAT(Sent(), ElementsAre("7/1", "8/1"));
}

TEST_F(ChangeSenderTest, AChangeThatIsGivenUpIsVoided) {
  retries_.max_attempts = 2;
  sessions_.Follow([this](const Attempt& a) {
    if (a.is_void) return Refused(0);
    if (a.epoch == 8) return Committed(a.sequence);
    if (a.sequence == 1) return kLost;
    sessions_.AwaitVoid();
    return EpochEnded(0);
  });
  EXPECT_TRUE(absl::IsUnavailable(Change()));
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(),
              UnorderedElementsAre("7/1", "7/1", "void 7/1", "7/2", "8/1"));
  EXPECT_EQ(sender().number(), 1);
  for (const Attempt& attempt : sessions_.attempts()) {
    if (!attempt.is_void) continue;
    EXPECT_NE(attempt.call_id, sessions_.attempts()[0].call_id);
  }
}

TEST_F(ChangeSenderTest, AChangeThatWasCommittedWhenItWasGivenUpCounts) {
  retries_.max_attempts = 1;
  sessions_.Follow([](const Attempt& a) {
    if (a.is_void) {
      return Answer{grpc::StatusCode::FAILED_PRECONDITION, "OUT_OF_ORDER", 1};
    }
    return a.sequence == 1 ? kLost : Committed(a.sequence);
  });
  EXPECT_TRUE(absl::IsUnavailable(Change()));
  for (int i = 0; i < 1000 && sender().number() < 1; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(sender().number(), 1);
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/1", "void 7/1", "7/2"));
}

TEST_F(ChangeSenderTest, AGivenUpChangeIsSettledWithoutRetriesToo) {
  retries_.max_attempts = 1;
  sessions_.Follow([this](const Attempt& a) {
    if (a.epoch > 7) return Committed(a.sequence);
    if (a.sequence > 1) return EpochEnded(0);
    return sessions_.attempts().size() < 4 ? kLost : Refused(0);
  });
  EXPECT_TRUE(absl::IsUnavailable(Change()));
  sessions_.AwaitAttempts(4);
  EXPECT_TRUE(Change().ok());
  EXPECT_EQ(Sent().back(), "8/1");
}

TEST_F(ChangeSenderTest, ARefusalOfTheRequestEndsNoSession) {
  sessions_.Follow([](const Attempt& a) {
    if (a.epoch > 7) return Committed(a.sequence);
    Answer answer{grpc::StatusCode::FAILED_PRECONDITION, "OUT_OF_ORDER", 0};
    answer.field = "parameters.w";
    return answer;
  });
  EXPECT_EQ(ReasonOf(Change()), Reason::kOutOfOrder);
  EXPECT_TRUE(Change().ok());
  EXPECT_THAT(Sent(), ElementsAre("7/1", "8/1"));
}

TEST_F(ChangeSenderTest, ACommittedChangeCountsEvenIfItsEpochHasEnded) {
  sessions_.Follow([](const Attempt& a) {
    if (a.epoch > 7) return Committed(a.sequence);
    if (a.is_void) return EpochEnded(2);
    if (a.sequence == 1) return kLost;
    return a.sequence == 2 ? Committed(2) : Refused(2);
  });
  retries_.max_attempts = 1000;
  auto first = std::async(std::launch::async, [this] {
    return sender()
        .Change(absl::Now() + absl::Milliseconds(200), SendWith(""))
        .status();
  });
  sessions_.AwaitAttempts(1);
  EXPECT_TRUE(Change().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Change()));
  EXPECT_FALSE(first.get().ok());
  EXPECT_TRUE(Change().ok());
  EXPECT_EQ(Sent().back(), "8/3");
}

TEST_F(ChangeSenderTest, BeginWaitsForTheWindow) {
  opened_.set_window(2);
  sessions_.Follow([](const Attempt& a) { return Committed(a.sequence); });
  auto first = Begin();
  auto second = Begin();
  const auto third = sender().Begin(absl::Now() - absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(third.status())) << third.status();
  EXPECT_EQ(ReasonOf(third.status()), Reason::kDeadline);
  EXPECT_TRUE(Finish(first).get().ok());
  EXPECT_TRUE(Finish(Begin()).get().ok());
  EXPECT_TRUE(Finish(second).get().ok());
}

TEST_F(ChangeSenderTest, ATakeoverEndsEveryCall) {
  sessions_.Follow([](const Attempt&) {
    return Answer{grpc::StatusCode::FAILED_PRECONDITION, "TAKEN_OVER", 3};
  });
  auto waiting = Begin();
  EXPECT_EQ(ReasonOf(Change()), Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(Finish(waiting).get()), Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(Change()), Reason::kTakenOver);
  EXPECT_EQ(ReasonOf(Read()), Reason::kTakenOver);
  EXPECT_EQ(Sent().size(), 1u);
  EXPECT_EQ(sender().number(), 0);
}

TEST_F(ChangeSenderTest, ATakeoverThatARenewalFindsEndsTheSession) {
  const absl::Status taken = MakeError(absl::StatusCode::kFailedPrecondition,
                                       {Reason::kTakenOver, "", "", ""});
  EXPECT_TRUE(sender().StopIn(6, taken).ok());
  sessions_.Follow([](const Attempt& a) { return Committed(a.sequence); });
  EXPECT_TRUE(Change().ok());
  EXPECT_EQ(sender().StopIn(sender().epoch(), taken), taken);
  EXPECT_EQ(Change(), taken);
}

TEST_F(ChangeSenderTest, AReadDoesNotFollowTheChangesThatBeganBehindIt) {
  sessions_.Follow([](const Attempt& a) {
    return Committed(a.sequence > 0 ? a.sequence : 0);
  });
  const auto read = *sender().BeginRead();
  EXPECT_TRUE(Change().ok());
  EXPECT_TRUE(
      sender().FinishRead(read, absl::InfiniteFuture(), SendWith("")).ok());
  EXPECT_EQ(sessions_.attempts()[1].after, 0);
}

TEST_F(ChangeSenderTest, AReadFollowsTheChangesThatBeganBefore) {
  sessions_.Follow([this](const Attempt& a) {
    if (a.sequence > 0) return Committed(a.sequence);
    return sessions_.attempts().size() < 2
               ? Answer{grpc::StatusCode::ABORTED, "OUT_OF_ORDER", 0}
               : Committed(1);
  });
  auto change = Begin();
  auto read = std::async(std::launch::async, [this] { return Read(); });
  sessions_.AwaitAttempts(1);
  EXPECT_TRUE(read.get().ok());
  EXPECT_EQ(sessions_.attempts()[0].after, 1);
  EXPECT_EQ(sessions_.attempts()[1].after, 1);
  EXPECT_TRUE(Finish(change).get().ok());
}

TEST_F(ChangeSenderTest, AReadBehindAFailedChangeFails) {
  sessions_.Follow([](const Attempt& a) {
    if (a.sequence > 0) return Refused(0);
    return Answer{grpc::StatusCode::ABORTED, "OUT_OF_ORDER", 0};
  });
  retries_.initial = absl::Seconds(1);
  auto change = Begin();
  auto read = std::async(std::launch::async, [this] { return Read(); });
  sessions_.AwaitAttempts(1);
  EXPECT_TRUE(absl::IsInvalidArgument(Finish(change).get()));
  EXPECT_EQ(ReasonOf(read.get()), Reason::kEpochEnded);
}

TEST_F(ChangeSenderTest, AWallClockThatIsSetBackDelaysNoAttempt) {
  sessions_.Follow([this](const Attempt& a) {
    return sessions_.attempts().size() % 2 == 1 ? kLost : Committed(a.sequence);
  });
  const ChangeSender::Send send = [this](grpc::ClientContext* context) {
    auto reply = sessions_.Send("", context);
    SetClockBack();
    return reply;
  };
  for (const bool is_read : {true, false}) {
    auto status = std::async(std::launch::async, [&, is_read] {
      const absl::Time never = absl::InfiniteFuture();
      return (is_read ? sender().Read(never, send)
                      : sender().Change(never, send))
          .status();
    });
    EXPECT_EQ(status.wait_for(std::chrono::seconds(10)),
              std::future_status::ready);
    if (HasFailure()) {
      sender().StopIn(sender().epoch(), absl::CancelledError()).IgnoreError();
    }
    EXPECT_TRUE(status.get().ok());
  }
}

}  // namespace
}  // namespace convgrad
