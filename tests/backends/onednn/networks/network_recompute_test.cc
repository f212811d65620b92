// Tests which values a backward computes again, and in how much memory.
#include "backends/onednn/networks/network_recompute.h"

#include <algorithm>
#include <utility>

#include "backends/onednn/execution/onednn_memory_map.h"
#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kBytes = 1 << 20;

Step MakeStep(std::vector<BufferId> reads, std::vector<BufferId> writes) {
  return {.kind = "test",
          .reads = std::move(reads),
          .writes = std::move(writes),
          .function = [](const RunContext&) {}};
}

// A forward whose steps each compute a value from the value before, the first
// one from an operand; and a backward that reads the values from the last to
// the first.
struct Chain {
  explicit Chain(int layers) {
    operand = schedule.AddBuffer({kBytes, Area::kOperand, 0});
    BufferId last = operand;
    for (int i = 0; i < layers; ++i) {
      values.push_back(schedule.AddBuffer(kBytes));
      schedule.Add(MakeStep({last}, {values.back()}));
      last = values.back();
    }
    parts.forward_end = parts.backward_begin = schedule.steps().size();
    BufferId gradient = schedule.AddBuffer({kBytes, Area::kOperand, 1});
    for (int i = layers; i-- > 0;) {
      const BufferId next = schedule.AddBuffer(kBytes);
      schedule.Add(MakeStep({values[i], gradient}, {next}));
      gradient = next;
    }
    parts.is_result.resize(schedule.buffers().size());
    parts.is_result[gradient] = true;
    parts.is_lasting.resize(schedule.buffers().size());
    parts.is_lasting[operand] = true;
  }

  std::vector<RepeatedSegment> Find() const {
    return FindRepeatedSegments(schedule, parts);
  }
  MemoryMap Place() const {
    return PlaceBuffers(schedule, std::vector<bool>(schedule.buffers().size()));
  }

  Schedule schedule;
  ForwardAndBackward parts;
  BufferId operand;
  std::vector<BufferId> values;
};

// Expects that every buffer of the plan is complete when a step reads it.
void ExpectWholeWhenRead(const Chain& chain) {
  const MemoryMap memory = chain.Place();
  const auto& buffers = chain.schedule.buffers();
  std::vector<bool> is_whole(buffers.size());
  const auto overlap = [&](size_t a, size_t b) {
    return memory.scratch_offsets[a] < memory.scratch_offsets[b] + kBytes &&
           memory.scratch_offsets[b] < memory.scratch_offsets[a] + kBytes;
  };
  for (const Step& step : chain.schedule.steps()) {
    for (const BufferId read : step.reads) {
      EXPECT_TRUE(is_whole[read] || buffers[read].area != Area::kOwn) << read;
    }
    for (const BufferId written : step.writes) {
      ASSERT_NE(memory.scratch_offsets[written], MemoryMap::kUnplaced);
      for (size_t i = 0; i < buffers.size(); ++i) {
        if (overlap(i, written)) is_whole[i] = false;
      }
      is_whole[written] = true;
    }
  }
}

bool Writes(const std::vector<RepeatedSegment>& segments, BufferId buffer) {
  return std::any_of(
      segments.begin(), segments.end(), [&](const RepeatedSegment& segment) {
        return std::find(segment.writes.begin(), segment.writes.end(),
                         buffer) != segment.writes.end();
      });
}

TEST(RepeatSegments, TheBackwardNeedsLessMemoryAndFindsAllThatItReads) {
  Chain chain(16);
  const int64_t kept = chain.Place().scratch_bytes;
  ExpectWholeWhenRead(chain);
  RepeatSegments(chain.Find(), chain.parts.backward_begin, &chain.schedule);
  ExpectWholeWhenRead(chain);
  // 16 values and a gradient. With recomputation: about four kept values, four
  // recomputed ones, and gradients.
  EXPECT_EQ(kept, 17 * kBytes);
  EXPECT_LE(chain.Place().scratch_bytes, 10 * kBytes);
}

TEST(RepeatSegments, CopiesOfAForwardsStepsComeInItsOrder) {
  Chain chain(16);
  const size_t steps = chain.schedule.steps().size();
  const std::vector<RepeatedSegment> segments = chain.Find();
  size_t copies = 0;
  for (const RepeatedSegment& segment : segments) {
    copies += segment.steps.size();
    EXPECT_TRUE(std::is_sorted(segment.steps.begin(), segment.steps.end()));
    EXPECT_LT(segment.steps.back(), chain.parts.forward_end);
  }
  EXPECT_GT(copies, 0);
  RepeatSegments(segments, chain.parts.backward_begin, &chain.schedule);
  EXPECT_EQ(chain.schedule.steps().size(), steps + copies);
  const auto& all = chain.schedule.steps();
  EXPECT_EQ(std::count_if(all.begin(), all.end(),
                          [](const Step& step) { return step.is_again; }),
            static_cast<std::ptrdiff_t>(copies));
  for (size_t i = 0; i < chain.parts.backward_begin; ++i) {
    EXPECT_FALSE(all[i].is_again) << i;
  }
}

TEST(FindRepeatedSegments, WhatAnOperandThatMayChangeGivesIsKept) {
  Chain chain(16);
  EXPECT_TRUE(Writes(chain.Find(), chain.values[0]));
  chain.parts.is_lasting[chain.operand] = false;
  EXPECT_FALSE(Writes(chain.Find(), chain.values[0]));
  EXPECT_FALSE(chain.Find().empty());
}

TEST(FindRepeatedSegments, ResultsAreWrittenOnce) {
  Chain chain(16);
  ASSERT_TRUE(Writes(chain.Find(), chain.values[1]));
  chain.parts.is_result[chain.values[1]] = true;
  EXPECT_FALSE(Writes(chain.Find(), chain.values[1]));
}

TEST(FindRepeatedSegments, ValuesThatAreReadRightAwayAreKept) {
  const Chain chain(16);
  EXPECT_FALSE(Writes(chain.Find(), chain.values.back()));
  EXPECT_TRUE(Chain(1).Find().empty());
}

}  // namespace
}  // namespace convgrad::onednn
