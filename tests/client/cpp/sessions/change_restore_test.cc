// Tests that a durable session's changes are repeated after restarts of its
// server, with a service in this process that loses what isn't on its disk.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/sessions/change_sender.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cpp/durable_session.h"
#include "tests/client/cpp/scripted_sessions.h"

namespace convgrad {
namespace {

using testing::ElementsAre;

constexpr int64_t kWindow = DurableSession::kWindow;

class ChangeRestoreTest : public testing::Test {
 protected:
  ChangeRestoreTest() {
    opened_.set_session_id("sixteen bytes id");
    opened_.set_epoch(1);
    opened_.set_window(kWindow);
    opened_.set_lease_seconds(60);
    opened_.set_durable(true);
    retries_.initial = absl::Milliseconds(1);
    retries_.longest = absl::Milliseconds(5);
    retries_.max_attempts = 1000;
    sessions_.Follow(
        [this](const Attempt& attempt) { return session_.Handle(attempt); });
  }

  ~ChangeRestoreTest() override {
    sender_.reset();
    session_.Restart();  // ends calls that wait there
  }

  ChangeSender& sender() {
    if (sender_ == nullptr) {
      sender_ = std::make_unique<ChangeSender>(
          opened_, retries_, SendWith("void"),
          ChangeSender::Durability{.resume =
                                       [this] {
                                         while (!may_resume_)
                                           absl::SleepFor(
                                               absl::Milliseconds(1));
                                         return session_.Resume();
                                       },
                                   .save = [this] { return session_.Save(); },
                                   .replay_bytes = replay_bytes_});
    }
    return *sender_;
  }
  SendCall SendWith(const std::string& name) {
    return [this, name](grpc::ClientContext* context) {
      return sessions_.Send(name, context);
    };
  }
  OwnedChange Owned(const std::string& name) {
    OwnedChange owned;
    owned.send = SendWith(name);
    owned.bytes = 1 << 10;
    return owned;
  }
  absl::Status Change(const std::string& name,
                      absl::Time deadline = absl::InfiniteFuture()) {
    // The caller's own bytes are no longer valid once it has an answer.
    const auto is_valid = std::make_shared<bool>(true);
    const SendCall send = [this, name, is_valid](grpc::ClientContext* context) {
      return sessions_.Send(*is_valid ? name : "freed", context);
    };
    absl::Status status = sender().Change(deadline, send, Owned(name)).status();
    *is_valid = false;
    return status;
  }
  // Makes changes that are named by their numbers.
  void Changes(int64_t first, int64_t last) {
    for (int64_t i = first; i <= last; ++i) {
      const absl::Status status = Change(absl::StrCat(i));
      EXPECT_TRUE(status.ok()) << i << ": " << status;
    }
  }
  absl::Status Read() {
    return sender().Read(absl::InfiniteFuture(), SendWith("")).status();
  }
  void ExpectHistory(int64_t last) {
    std::vector<std::string> expected;
    for (int64_t i = 1; i <= last; ++i) expected.push_back(absl::StrCat(i));
    EXPECT_EQ(session_.history(), expected);
  }

  v1::SessionResponse opened_;
  RetryPolicy retries_;
  int64_t replay_bytes_ = 1 << 20;
  std::atomic<bool> may_resume_ = true;
  DurableSession session_;
  ScriptedSessions sessions_;
  std::unique_ptr<ChangeSender> sender_;
};

TEST_F(ChangeRestoreTest, RepeatsChangesSinceTheDurableNumber) {
  Changes(1, 2);
  ASSERT_TRUE(session_.Save().ok());
  Changes(3, 5);
  EXPECT_EQ(sender().durable_number(), 2);
  const std::vector<Attempt> before = sessions_.attempts();
  session_.Restart();
  Changes(6, 6);
  session_.AwaitNumber(6);
  ExpectHistory(6);
  EXPECT_EQ(sender().number(), 6);
  int repeated = 0;
  for (const Attempt& attempt : sessions_.attempts()) {
    EXPECT_FALSE(attempt.is_void);
    for (const Attempt& first : before) {
      if (attempt.epoch == 1 || attempt.sequence != first.sequence) continue;
      EXPECT_EQ(attempt.call_id, first.call_id);
      ++repeated;
    }
  }
  EXPECT_EQ(repeated, 3);
}

TEST_F(ChangeRestoreTest, AReadNoticesTheRestart) {
  Changes(1, 3);
  session_.Restart();
  EXPECT_TRUE(Read().ok());
  ExpectHistory(3);
}

TEST_F(ChangeRestoreTest, RepeatsMoreChangesThanTheWindow) {
  Changes(1, 10 * kWindow);
  session_.Restart();
  EXPECT_TRUE(Read().ok());
  ExpectHistory(10 * kWindow);
  session_.Restart();
  Changes(10 * kWindow + 1, 10 * kWindow + 1);
  ExpectHistory(10 * kWindow + 1);
}

TEST_F(ChangeRestoreTest, SurvivesRestartsAtAnyMoment) {
  std::mt19937 random(1);
  std::thread breaker([&] {
    for (int i = 0; i < 30; ++i) {
      absl::SleepFor(absl::Milliseconds(random() % 40));
      if (random() % 3 == 0) session_.Save().IgnoreError();
      session_.Restart();
    }
  });
  std::vector<std::future<absl::Status>> changes;
  for (int64_t i = 1; i <= 300; ++i) {
    const std::string name = absl::StrCat(i);
    // Begins on this thread, so that the order is known.
    auto change = sender().Begin(absl::InfiniteFuture(), nullptr, Owned(name));
    ASSERT_TRUE(change.ok()) << change.status();
    changes.push_back(std::async(std::launch::async, [this, name, change] {
      return sender().Finish(*change, SendWith(name)).status();
    }));
    if (i % 25 == 0) {
      EXPECT_TRUE(Read().ok());
    }
  }
  for (std::future<absl::Status>& change : changes) {
    const absl::Status status = change.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  breaker.join();
  EXPECT_TRUE(Read().ok());
  ExpectHistory(300);
}

TEST_F(ChangeRestoreTest, RepeatsACommittedChangeThatWasGivenUp) {
  Changes(1, 1);
  session_.LoseAnswersTo(2);
  EXPECT_FALSE(Change("2", absl::Now() + absl::Milliseconds(50)).ok());
  Changes(3, 3);
  session_.LoseAnswersTo(0);
  session_.Restart();
  Changes(4, 4);
  ExpectHistory(4);
  EXPECT_EQ(sender().number(), 4);
}

TEST_F(ChangeRestoreTest, RepeatsACommittedChangeWhoseDeadlineHasPassed) {
  session_.LoseAnswersTo(1);
  auto late = std::async(std::launch::async, [this] {
    return Change("1", absl::Now() + absl::Seconds(1));
  });
  session_.AwaitNumber(1);
  Changes(2, 2);
  session_.Restart();
  Changes(3, 3);  // the first answer of the new server
  EXPECT_FALSE(late.get().ok());
  session_.LoseAnswersTo(0);
  session_.Restart();
  Changes(4, 4);
  ExpectHistory(4);
}

TEST_F(ChangeRestoreTest, RepeatsACommittedChangeThatIsRefusedUntilItIsLate) {
  session_.LoseAnswersTo(1);
  auto late = std::async(std::launch::async, [this] {
    return Change("1", absl::Now() + absl::Milliseconds(300));
  });
  session_.AwaitNumber(1);
  Changes(2, 2);
  session_.RefuseForNow("1");
  session_.Restart();
  session_.LoseAnswersTo(0);
  auto reader = std::async(std::launch::async, [this] { return Read(); });
  EXPECT_FALSE(late.get().ok());
  session_.RefuseForNow("none");
  EXPECT_TRUE(reader.get().ok());
  Changes(3, 3);
  ExpectHistory(3);
}

TEST_F(ChangeRestoreTest, TheThreadOfAVoidSeesThatItsChangeWasRepeated) {
  Changes(1, 1);
  session_.LoseAnswersTo(2);
  sessions_.Follow([&](const Attempt& attempt) {
    if (!attempt.is_void) return session_.Handle(attempt);
    absl::SleepFor(absl::Milliseconds(300));
    return Answer{grpc::StatusCode::UNAVAILABLE};
  });
  auto late = std::async(std::launch::async, [this] {
    return Change("2", absl::Now() + absl::Milliseconds(200));
  });
  session_.AwaitNumber(2);
  Changes(3, 3);
  EXPECT_FALSE(late.get().ok());
  sessions_.AwaitVoid();
  session_.LoseAnswersTo(0);
  session_.Restart();
  Changes(4, 4);
  ExpectHistory(4);
  sender_.reset();
}

TEST_F(ChangeRestoreTest, ARepeatThatIsRefusedWaitsForNoneBehindIt) {
  session_.LoseAnswersTo(1);
  std::atomic<bool> is_away = false;
  std::atomic<bool> was_sent = false;
  sessions_.Follow([&](const Attempt& attempt) {
    if (!is_away || attempt.sequence < 1) return session_.Handle(attempt);
    if (attempt.sequence == 2) was_sent = true;
    return Answer{grpc::StatusCode::UNAVAILABLE};
  });
  auto late = std::async(std::launch::async, [this] {
    return Change("1", absl::Now() + absl::Milliseconds(400));
  });
  session_.AwaitNumber(1);
  Changes(2, 2);
  session_.RefuseForNow("1");
  is_away = true;
  session_.Restart();
  session_.LoseAnswersTo(0);
  auto reader = std::async(std::launch::async, [this] { return Read(); });
  while (!was_sent && late.wait_for(std::chrono::milliseconds(1)) !=
                          std::future_status::ready) {
  }
  EXPECT_FALSE(late.get().ok());
  is_away = false;
  absl::SleepFor(absl::Milliseconds(50));
  session_.RefuseForNow("none");
  EXPECT_TRUE(reader.get().ok());
  Changes(3, 3);
  ExpectHistory(3);
}

TEST_F(ChangeRestoreTest, DeadlinesHoldWhileTheSessionIsResumed) {
  Changes(1, 2);
  may_resume_ = false;
  session_.Restart();
  const absl::Time soon = absl::Now() + absl::Milliseconds(50);
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(sender().Read(soon, SendWith("")).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Change("given up", soon)));
  may_resume_ = true;
  Changes(3, 3);
  ExpectHistory(3);
}

TEST_F(ChangeRestoreTest, AnswersOfAnEarlierServerDontCount) {
  session_.LoseAnswersTo(1);
  auto first = std::async(std::launch::async, [this] { return Change("1"); });
  session_.AwaitNumber(1);
  std::atomic<bool> is_held = true;
  const SendCall held = [&](grpc::ClientContext* context) {
    auto answer = sessions_.Send("2", context);
    while (is_held) absl::SleepFor(absl::Milliseconds(1));
    return answer;
  };
  auto second = std::async(std::launch::async, [&] {
    return sender().Change(absl::InfiniteFuture(), held, Owned("2")).status();
  });
  session_.AwaitNumber(2);
  session_.Refuse("1");
  session_.Restart();
  session_.LoseAnswersTo(0);
  EXPECT_FALSE(Read().ok());
  EXPECT_FALSE(first.get().ok());
  is_held = false;
  EXPECT_EQ(ReasonOf(second.get()), Reason::kEpochEnded);
  EXPECT_THAT(session_.history(), ElementsAre());
}

TEST_F(ChangeRestoreTest, AnUnknownChangeThatWasGivenUpTakesNoEffect) {
  Changes(1, 1);
  session_.Refuse("");
  std::atomic<bool> is_away = true;
  sessions_.Follow([&](const Attempt& attempt) {
    return is_away && !attempt.is_void ? Answer{grpc::StatusCode::UNAVAILABLE}
                                       : session_.Handle(attempt);
  });
  EXPECT_FALSE(Change("lost", absl::Now() + absl::Milliseconds(20)).ok());
  is_away = false;
  session_.Restart();
  Changes(2, 3);
  ExpectHistory(3);
}

TEST_F(ChangeRestoreTest, AFullReplayWaitsForASnapshot) {
  replay_bytes_ = 8 << 10;
  Changes(1, 40);
  EXPECT_GE(session_.saves(), 8);
  EXPECT_GE(sender().durable_number(), 30);
  session_.Restart();
  Changes(41, 41);
  ExpectHistory(41);
}

TEST_F(ChangeRestoreTest, WhatIsNotKeptCantBeRepeated) {
  replay_bytes_ = 4 << 10;
  session_.SetCanSave(false);
  Changes(1, 40);
  session_.Restart();
  const absl::Status lost = Change("41");
  EXPECT_TRUE(absl::IsFailedPrecondition(lost)) << lost;
  EXPECT_EQ(ReasonOf(lost), Reason::kRestored) << lost;
  EXPECT_EQ(Read(), lost);
}

TEST_F(ChangeRestoreTest, ARepeatedChangeThatIsRefusedEndsTheSession) {
  Changes(1, 4);
  session_.Refuse("2");
  session_.Restart();
  const absl::Status refused = Change("5");
  EXPECT_EQ(ReasonOf(refused), Reason::kRestored) << refused;
  EXPECT_THAT(session_.history(), ElementsAre("1"));
}

TEST_F(ChangeRestoreTest, AnotherClientKeepsTheSession) {
  Changes(1, 2);
  session_.Restart();
  ASSERT_TRUE(session_.Resume().ok());
  EXPECT_EQ(ReasonOf(Change("3")), Reason::kTakenOver);
}

TEST_F(ChangeRestoreTest, AnOutageLongerThanTheLeaseEndsNothing) {
  opened_.set_lease_seconds(0.05);
  std::atomic<bool> is_away = true;
  sessions_.Follow([&](const Attempt& attempt) {
    if (is_away) return Answer{grpc::StatusCode::UNAVAILABLE};
    return session_.Handle(attempt);
  });
  EXPECT_FALSE(Change("1", absl::Now() + absl::Milliseconds(50)).ok());
  absl::SleepFor(absl::Milliseconds(200));
  is_away = false;
  EXPECT_TRUE(Change("2").ok());
  EXPECT_THAT(session_.history(), ElementsAre("2"));
}

TEST_F(ChangeRestoreTest, AChangeOfAnotherClientEndsTheSession) {
  Changes(1, 1);
  opened_.set_epoch(1);
  for (const char* name : {"2", "3"}) {
    session_.Handle({.epoch = 1,
                     .sequence = std::ssize(session_.history()) + 1,
                     .call_id = name,
                     .name = name});
  }
  ASSERT_TRUE(session_.Save().ok());
  session_.Restart();
  EXPECT_EQ(ReasonOf(Change("mine")), Reason::kTakenOver);
}

}  // namespace
}  // namespace convgrad
