// Tests the order of a session's changes with random losses and failures.
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "server/sessions/change_order.h"

namespace convgrad {
namespace {

absl::Status Busy() {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   {Reason::kBusy, "server.memory", "0 bytes free", "1"});
}

// The client pipelines over a network that loses requests, replies and
// connections at every stage. Each change takes effect once, in its order.
TEST(ChangeOrder, NothingIsLostOrDoneTwice) {
  constexpr int64_t kChanges = 3000;
  std::mt19937 random(20261122);
  const auto chance = [&](int percent) {
    return static_cast<int>(random() % 100) < percent;
  };
  ChangeOrder order;
  absl::Time now = absl::UnixEpoch();
  std::vector<int64_t> effects;
  std::map<int64_t, bool> has_reply;
  int64_t epoch = 1;
  int64_t running = 0;
  int64_t running_epoch = 0;
  int64_t prepared = 0;
  bool epoch_is_over = false;
  while (static_cast<int64_t>(has_reply.size()) < kChanges) {
    ChangeOrder::Notices notices;
    int64_t acknowledged = 0;
    while (has_reply.contains(acknowledged + 1)) ++acknowledged;
    if (epoch_is_over && !running) {
      epoch_is_over = false;
      epoch = chance(50) ? order.epoch() : order.Resume(&notices);
    }
    const int64_t sequence = acknowledged + 1 + random() % 5;
    if (sequence <= kChanges) {
      const bool reply_arrives = chance(70);
      order.Arrive({epoch, sequence, absl::StrCat(sequence), acknowledged}, now,
                   {now + absl::Seconds(30),
                    [&, sequence, reply_arrives,
                     epoch_of = epoch](const ChangeOrder::Decision& decision) {
                      if (prepared == sequence) prepared = 0;
                      if (!decision.why.ok()) {
                        const Reason reason = DetailOf(decision.why)->reason;
                        EXPECT_TRUE(absl::IsAborted(decision.why) ||
                                    reason == Reason::kDeadline ||
                                    reason == Reason::kBusy ||
                                    reason == Reason::kTakenOver)
                            << decision.why;
                        epoch_is_over |= reason != Reason::kBusy;
                      } else if (decision.runs()) {
                        EXPECT_EQ(running, 0);
                        EXPECT_EQ(prepared, 0);
                        running = sequence;
                        running_epoch = epoch_of;
                      } else if (reply_arrives) {
                        has_reply[sequence] = true;
                      }
                    },
                    [&, sequence] {
                      EXPECT_EQ(prepared, 0);
                      EXPECT_EQ(sequence, running + 1);
                      prepared = sequence;
                    }},
                   &notices);
    }
    Tell(std::exchange(notices, {}));
    if (running != 0 && chance(50)) {
      order.AdmitNextEarly({running_epoch, running, "", 0}, &notices);
      Tell(std::exchange(notices, {}));
    }
    if (running != 0 && chance(60)) {
      const int64_t ended = std::exchange(running, 0);
      if (chance(85)) {
        effects.push_back(ended);
        order.Commit(std::make_shared<int>(0), /*reply_bytes=*/0, now,
                     &notices);
        if (chance(70)) has_reply[ended] = true;
      } else if (chance(50)) {
        EXPECT_FALSE(order.Fail(Busy(), now, &notices).ok());
      } else {
        EXPECT_FALSE(
            order.Fail(absl::CancelledError("connection lost"), now, &notices)
                .ok());
        epoch_is_over = true;
      }
    }
    now += absl::Milliseconds(random() % 2000);
    order.Expire(now, &notices);
    Tell(notices);
  }
  ASSERT_EQ(static_cast<int64_t>(effects.size()), kChanges);
  for (int64_t i = 0; i < kChanges; ++i) EXPECT_EQ(effects[i], i + 1);
}

}  // namespace
}  // namespace convgrad
