#include "server/rpc/calls/message_arrival.h"

#include <memory>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

using Next = MessageArrival::Next;

ChangeOrder::Decision Runs() { return ChangeOrder::Reply(); }
ChangeOrder::Decision Refused() { return absl::AbortedError("refused"); }
bool Stops() { return true; }
bool StopsTooLate() { return false; }

TEST(MessageArrival, AsksForMemoryInItsTurn) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.TakeTurn(Runs()), Next::kAskMemory);
  arrival.TakeMemory();
  arrival.StartComing();
  EXPECT_TRUE(arrival.has_all_but_message());
  EXPECT_EQ(arrival.End(absl::OkStatus()), Next::kProceed);
  EXPECT_TRUE(arrival.decision().ok());
  EXPECT_TRUE(arrival.message_status().ok());
}

TEST(MessageArrival, IsRefusedWithoutAMessage) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.TakeTurn(Refused()), Next::kProceed);
  EXPECT_EQ(arrival.decision().status(), Refused().status());
  // Too late to prepare itself.
  EXPECT_EQ(arrival.Ask(), Next::kNothing);
}

TEST(MessageArrival, AMessageMayComeBeforeItsTurn) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.Ask(), Next::kAskMemory);
  arrival.TakeMemory();
  arrival.StartComing();
  EXPECT_EQ(arrival.End(absl::OkStatus()), Next::kNothing);
  EXPECT_FALSE(arrival.has_all_but_message());
  EXPECT_EQ(arrival.TakeTurn(Runs()), Next::kProceed);
}

TEST(MessageArrival, AsksAgainIfThereWasNoMemoryBefore) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.Ask(), Next::kAskMemory);
  EXPECT_EQ(arrival.End(absl::ResourceExhaustedError("busy")), Next::kNothing);
  EXPECT_EQ(arrival.TakeTurn(Runs()), Next::kAskMemory);
}

TEST(MessageArrival, AClientThatHasGoneLeavesThoseWhoWait) {
  for (const absl::Status& why :
       {absl::CancelledError(""), absl::DeadlineExceededError("")}) {
    MessageArrival arrival;
    arrival.Ask();
    arrival.TakeMemory();
    arrival.StartComing();
    EXPECT_EQ(arrival.End(why), Next::kWithdraw);
    EXPECT_EQ(arrival.message_status(), why);
  }
}

TEST(MessageArrival, ARefusalGivesUpWhatIsBeingRead) {
  MessageArrival arrival;
  arrival.Ask();
  arrival.TakeMemory();
  arrival.StartComing();
  EXPECT_EQ(arrival.GiveUp(Stops), Next::kNothing);  // nobody has refused it
  EXPECT_EQ(arrival.TakeTurn(Refused()), Next::kNothing);
  // gRPC's own event is about to come, and ends it.
  EXPECT_EQ(arrival.GiveUp(StopsTooLate), Next::kCancelWait);
  EXPECT_EQ(arrival.GiveUp(Stops), Next::kProceed);
}

TEST(MessageArrival, ARefusalLeavesThoseWhoWaitForMemory) {
  MessageArrival arrival;
  arrival.Ask();
  EXPECT_EQ(arrival.TakeTurn(Refused()), Next::kNothing);
  EXPECT_EQ(arrival.GiveUp(Stops), Next::kCancelWait);
}

// gRPC asserts that nothing is sent after the end: while the call asks whether
// its client is still there, only the answer to that may end it, also if the
// thread that asked for the message comes late to say so.
TEST(MessageArrival, AProbeIsNotGivenUp) {
  MessageArrival arrival;
  arrival.Ask();
  arrival.TakeMemory();
  arrival.Probe();        // on gRPC's thread: the read has failed already
  arrival.StartComing();  // on the thread that has started it
  arrival.TakeTurn(Refused());
  EXPECT_EQ(arrival.GiveUp(Stops), Next::kCancelWait);
  EXPECT_EQ(arrival.End(absl::InvalidArgumentError("")), Next::kProceed);
}

}  // namespace
}  // namespace convgrad
