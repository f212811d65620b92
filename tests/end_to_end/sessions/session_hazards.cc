// These functions of `SessionDriver` break the rules, and lose, repeat and
// reorder calls.
#include <algorithm>

#include "tests/end_to_end/sessions/session_driver.h"

namespace convgrad {

void SessionDriver::RepeatSome() {
  if (late_.empty()) return;
  const auto [change, request] =
      late_[random_.Below(static_cast<int>(late_.size()))];
  const ModelOrder::Judgement expected = order_.Judge(change);
  ASSERT_TRUE(expected.verdict == ModelOrder::Verdict::kReplays ||
              expected.verdict == ModelOrder::Verdict::kRefused);
  ++calls_;
  const Reply reply = StartChange(channel_, request, change)->Await();
  EXPECT_EQ(reply.status.error_code(), expected.code)
      << reply.status.error_message();
  EXPECT_EQ(reply.response, expected.reply);
  EXPECT_EQ(reply.trailers.reason, expected.reason);
  EXPECT_EQ(reply.number, order_.number());
}

void SessionDriver::BreakTheRules() {
  ChangeMetadata change = NextChange();
  const int64_t number = order_.number();
  switch (random_.Below(6)) {
    case 0:
      change.epoch += 1 + random_.Below(3);
      break;
    case 1:
      change.epoch = std::max<int64_t>(0, change.epoch - 1 - random_.Below(3));
      break;
    case 2:
      change.sequence = number + 65 + random_.Below(10);
      break;
    case 3:
      // The number is that of another call.
      change.sequence = std::max<int64_t>(1, number - random_.Below(5));
      if (number == 0) change.acknowledged = 1;
      break;
    case 4:
      change.acknowledged = number + 1 + random_.Below(100);
      break;
    case 5:
      change.sequence = number + 2 + random_.Below(63);
      // The driver doesn't know whether the lost call has acknowledged more.
      change.acknowledged = order_.acknowledged();
      break;
  }
  const ChangeRequest request = NextRequest();
  const ModelOrder::Judgement expected = order_.Judge(change);
  ++calls_;
  if (expected.verdict == ModelOrder::Verdict::kWaits) {
    const Reply reply =
        StartChange(channel_, request, change, absl::Milliseconds(5))->Await();
    EXPECT_EQ(reply.status.error_code(), grpc::DEADLINE_EXCEEDED)
        << reply.status.error_message();
    // The call may still wait on the server for a change that comes now.
    return Resume();
  }
  ASSERT_EQ(expected.verdict, ModelOrder::Verdict::kRefused);
  const Reply reply = StartChange(channel_, request, change)->Await();
  EXPECT_EQ(reply.status.error_code(), expected.code)
      << reply.status.error_message();
  EXPECT_EQ(reply.trailers.reason, expected.reason);
  EXPECT_EQ(reply.number, number);
}

void SessionDriver::LoseTheReply() {
  const ChangeMetadata change = NextChange();
  const ChangeRequest request = NextRequest();
  const std::unique_ptr<CallInFlight> call =
      StartChange(channel_, request, change);
  absl::SleepFor(absl::Microseconds(random_.Below(800)));
  call->Cancel();
  ++calls_;
  const Reply lost = call->Await();
  if (lost.number >= 0) return Settle(change, request, lost);
  EXPECT_EQ(lost.status.error_code(), grpc::CANCELLED);
  ++calls_;
  if (random_.Chance(70)) {
    const Reply reply = StartChange(channel_, request, change)->Await();
    if (reply.trailers.reason != "EPOCH_ENDED") {
      return Settle(change, request, reply);
    }
    // The lost call ran and failed.
    EXPECT_EQ(reply.status.error_code(), grpc::ABORTED);
    EXPECT_EQ(reply.number, order_.number());
    order_.Acknowledge(change.acknowledged);
    return order_.Fail();
  }
  // The number says whether the call was committed.
  grpc::ClientContext context;
  v1::ResumeSessionRequest resume;
  resume.set_session_id(session_->id());
  v1::SessionResponse response;
  const grpc::Status status =
      session_->stub().ResumeSession(&context, resume, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  if (response.number() > order_.number()) {
    ModelTensors after = tensors_;
    ASSERT_EQ(MakeChange(request, change.sequence, &after).code,
              grpc::StatusCode::OK);
    tensors_ = std::move(after);
    order_.Commit(change, "");
  }
  // The lost call may have acknowledged earlier replies.
  late_.clear();
  EXPECT_EQ(response.number(), order_.number());
  EXPECT_GT(response.epoch(), order_.epoch());
  EXPECT_LE(response.epoch(), order_.epoch() + 2);
  order_.Resume(response.epoch());
}

void SessionDriver::Pipeline() {
  struct Sent {
    ChangeMetadata change;
    ChangeRequest request;
    std::vector<std::unique_ptr<CallInFlight>> calls;
  };
  const int64_t first = order_.number() + 1;
  const int64_t acknowledged = NextChange().acknowledged;
  std::vector<Sent> sent;
  ModelTensors predicted = tensors_;
  const int count = 2 + random_.Below(7);
  bool fails = false;
  for (int i = 0; i < count; ++i) {
    const ChangeMetadata change = {session_->id(), order_.epoch(), first + i,
                                   NewCallId(), acknowledged};
    sent.push_back({change, random_.Next(predicted), {}});
    if (fails) continue;
    fails = MakeChange(sent[i].request, first + i, &predicted).code !=
            grpc::StatusCode::OK;
  }
  std::vector<int> places;
  for (int i = 0; i < count; ++i) {
    places.push_back(i);
    if (random_.Chance(20)) places.push_back(i);
  }
  for (size_t i = places.size(); i > 1; --i) {
    std::swap(places[i - 1], places[random_.Below(static_cast<int>(i))]);
  }
  for (int i : places) {
    sent[i].calls.push_back(
        StartChange(channel_, sent[i].request, sent[i].change));
    ++calls_;
  }
  const int64_t epoch = order_.epoch();
  for (Sent& one : sent) {
    std::vector<Reply> replies;
    for (const auto& call : one.calls) replies.push_back(call->Await());
    if (order_.epoch() != epoch) {
      // An earlier change has failed.
      for (const Reply& reply : replies) {
        EXPECT_EQ(reply.trailers.reason, "EPOCH_ENDED");
      }
      continue;
    }
    // One call reports the error of a change that fails.
    std::stable_sort(replies.begin(), replies.end(),
                     [](const Reply& a, const Reply& b) {
                       return (a.trailers.reason == "EPOCH_ENDED") <
                              (b.trailers.reason == "EPOCH_ENDED");
                     });
    Reply reply = replies[0];
    if (reply.status.ok()) {
      EXPECT_GE(reply.number, one.change.sequence);
      reply.number = one.change.sequence;
    }
    Settle(one.change, one.request, reply);
    for (size_t i = 1; i < replies.size(); ++i) {
      EXPECT_EQ(replies[i].response, reply.response);
      EXPECT_EQ(replies[i].trailers.reason,
                reply.status.ok() ? "" : "EPOCH_ENDED");
    }
  }
}

}  // namespace convgrad
