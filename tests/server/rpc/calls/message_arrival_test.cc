#include "server/rpc/calls/message_arrival.h"

#include "gtest/gtest.h"

namespace convgrad {
namespace {

using arrival::Event;
using arrival::Next;

bool Stops() { return true; }
bool StopsTooLate() { return false; }

// Brings a message from kUnread to the state in which gRPC reads it.
void StartReading(MessageArrival* arrival, Next first) {
  ASSERT_EQ(first, Next::kAskMemory);
  ASSERT_EQ(arrival->On(Event::kMemory), Next::kRead);
  ASSERT_EQ(arrival->On(Event::kReading), Next::kNothing);
}

TEST(MessageArrival, NoTwoRowsFit) {
  const auto fitting = [](int state, int turn, int event) {
    int rows = 0;
    for (const arrival::Row& row : arrival::kRows) {
      rows += static_cast<int>(row.states.has(arrival::State{state}) &&
                               row.turns.has(arrival::Turn{turn}) &&
                               row.events.has(Event{event}));
    }
    return rows;
  };
  for (int state = 0; state <= static_cast<int>(arrival::kEnded); ++state) {
    for (int turn = 0; turn <= static_cast<int>(arrival::kRefused); ++turn) {
      for (int event = 0; event <= static_cast<int>(arrival::kStopped);
           ++event) {
        EXPECT_LE(fitting(state, turn, event), 1)
            << state << " " << turn << " " << event;
      }
    }
  }
}

TEST(MessageArrival, AsksForMemoryInItsTurn) {
  MessageArrival arrival;
  StartReading(&arrival, arrival.On(Event::kTurn));
  EXPECT_TRUE(arrival.has_all_but_message());
  EXPECT_EQ(arrival.On(Event::kCame), Next::kProceed);
}

TEST(MessageArrival, IsRefusedWithoutAMessage) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.On(Event::kRefusal), Next::kProceed);
  // The event is too late for an early admission.
  EXPECT_EQ(arrival.On(Event::kEarlyAdmission), Next::kNothing);
}

TEST(MessageArrival, AMessageMayComeBeforeItsTurn) {
  MessageArrival arrival;
  StartReading(&arrival, arrival.On(Event::kEarlyAdmission));
  EXPECT_EQ(arrival.On(Event::kCame), Next::kNothing);
  EXPECT_FALSE(arrival.has_all_but_message());
  EXPECT_EQ(arrival.On(Event::kTurn), Next::kProceed);
}

TEST(MessageArrival, ATurnThatComesWhileGrpcReadsChangesNothing) {
  MessageArrival arrival;
  StartReading(&arrival, arrival.On(Event::kEarlyAdmission));
  EXPECT_EQ(arrival.On(Event::kTurn), Next::kNothing);
  EXPECT_TRUE(arrival.has_all_but_message());
  EXPECT_EQ(arrival.On(Event::kCame), Next::kProceed);
}

TEST(MessageArrival, AsksAgainIfThereWasNoMemoryBefore) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.On(Event::kEarlyAdmission), Next::kAskMemory);
  EXPECT_EQ(arrival.On(Event::kFailed), Next::kNothing);
  EXPECT_EQ(arrival.On(Event::kTurn), Next::kAskMemory);
}

TEST(MessageArrival, EndsIfThereIsNoMemoryInItsTurn) {
  MessageArrival arrival;
  EXPECT_EQ(arrival.On(Event::kTurn), Next::kAskMemory);
  EXPECT_EQ(arrival.On(Event::kFailed), Next::kProceed);
  EXPECT_FALSE(arrival.has_all_but_message());
}

TEST(MessageArrival, AClientThatHasGoneLeavesThoseWhoWait) {
  MessageArrival reads;
  StartReading(&reads, reads.On(Event::kEarlyAdmission));
  EXPECT_EQ(reads.On(Event::kGone), Next::kWithdraw);
  MessageArrival asks;
  EXPECT_EQ(asks.On(Event::kEarlyAdmission), Next::kAskMemory);
  EXPECT_EQ(asks.On(Event::kGone), Next::kWithdraw);
}

TEST(MessageArrival, ARefusalGivesUpWhatIsBeingRead) {
  MessageArrival arrival;
  StartReading(&arrival, arrival.On(Event::kEarlyAdmission));
  // No decision has refused it.
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kNothing);
  EXPECT_EQ(arrival.On(Event::kRefusal), Next::kNothing);
  // gRPC's own event is about to come and ends it.
  EXPECT_EQ(arrival.On(Event::kGiveUp, StopsTooLate), Next::kNothing);
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kProceed);
}

TEST(MessageArrival, ARefusalLeavesThoseWhoWaitForMemory) {
  MessageArrival arrival;
  arrival.On(Event::kEarlyAdmission);
  EXPECT_EQ(arrival.On(Event::kRefusal), Next::kNothing);
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kCancelWait);
}

// gRPC asserts that nothing is sent after the end. While the call asks whether
// its client is still there, only the answer may end it, even if the thread
// that started the read reports that late.
TEST(MessageArrival, AProbeIsNotGivenUp) {
  MessageArrival arrival;
  arrival.On(Event::kEarlyAdmission);
  arrival.On(Event::kMemory);
  // This event is on gRPC's thread; the read has failed.
  EXPECT_EQ(arrival.On(Event::kReadFailed), Next::kProbe);
  // This event is on the thread that started the read.
  EXPECT_EQ(arrival.On(Event::kReading), Next::kNothing);
  arrival.On(Event::kRefusal);
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kNothing);
  EXPECT_EQ(arrival.On(Event::kFailed), Next::kProceed);
}

// A read that is about to start isn't given up either.
TEST(MessageArrival, AGrantIsNotGivenUp) {
  MessageArrival arrival;
  arrival.On(Event::kEarlyAdmission);
  EXPECT_EQ(arrival.On(Event::kMemory), Next::kRead);
  arrival.On(Event::kRefusal);
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kNothing);
  arrival.On(Event::kReading);
  EXPECT_EQ(arrival.On(Event::kGiveUp, Stops), Next::kProceed);
}

}  // namespace
}  // namespace convgrad
