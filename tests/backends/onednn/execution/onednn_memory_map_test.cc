// Tests the places of a schedule's buffers in memory.
#include "backends/onednn/execution/onednn_memory_map.h"

#include <random>

#include "gtest/gtest.h"

namespace convgrad::onednn {
namespace {

Step MakeStep(std::vector<BufferId> reads, std::vector<BufferId> writes) {
  return {.kind = "test",
          .reads = std::move(reads),
          .writes = std::move(writes),
          .function = [](const RunContext&) {}};
}

MemoryMap Place(const Schedule& schedule) {
  return PlaceBuffers(schedule, std::vector<bool>(schedule.buffers().size()));
}

TEST(PlaceBuffers, BuffersThatAreNeverInUseTogetherShareMemory) {
  Schedule schedule;
  const BufferId a = schedule.AddBuffer(1000), b = schedule.AddBuffer(1000),
                 c = schedule.AddBuffer(1000);
  schedule.Add(MakeStep({}, {a}));
  schedule.Add(MakeStep({a}, {b}));
  schedule.Add(MakeStep({b}, {c}));
  const MemoryMap map = Place(schedule);
  EXPECT_EQ(map.scratch_offsets[a], map.scratch_offsets[c]);
  EXPECT_NE(map.scratch_offsets[a], map.scratch_offsets[b]);
  EXPECT_EQ(map.scratch_bytes, 2048);
}

TEST(PlaceBuffers, ABufferThatIsWrittenAgainTakesNoMemoryInBetween) {
  Schedule schedule;
  const BufferId twice = schedule.AddBuffer(1000),
                 between = schedule.AddBuffer(1000);
  schedule.Add(MakeStep({}, {twice}));
  schedule.Add(MakeStep({}, {between}));
  Step again = MakeStep({}, {twice});
  again.is_again = true;
  schedule.Add(std::move(again));
  EXPECT_EQ(Place(schedule).scratch_bytes, 1024);
  // Buffers that are used until this step have other places.
  schedule.Add(MakeStep({twice, between}, {}));
  EXPECT_EQ(Place(schedule).scratch_bytes, 2048);
}

TEST(PlaceBuffers, WhatNoStepUsesTakesNoMemory) {
  Schedule schedule;
  const BufferId unused = schedule.AddBuffer(1000);
  const MemoryMap map = Place(schedule);
  EXPECT_EQ(map.scratch_offsets[unused], MemoryMap::kUnplaced);
  EXPECT_EQ(map.scratch_bytes, 0);
}

TEST(PlaceBuffers, TheTapeHasEachBufferToItself) {
  Schedule schedule;
  const BufferId a = schedule.AddBuffer(65), b = schedule.AddBuffer(1);
  schedule.Add(MakeStep({}, {a}));
  schedule.Add(MakeStep({}, {b}));
  const MemoryMap map = PlaceBuffers(schedule, {true, true});
  EXPECT_EQ(map.tape_offsets[a], 0);
  EXPECT_EQ(map.tape_offsets[b], 128);
  EXPECT_EQ(map.tape_bytes, 192);
  EXPECT_EQ(map.scratch_bytes, 0);
}

// Comparing each buffer with each other would take more than a minute.
TEST(PlaceBuffers, AChainOfManyStepsIsPlacedFast) {
  constexpr int kSteps = 200'000;
  Schedule schedule;
  for (int i = 0; i < kSteps; ++i) {
    const BufferId result = schedule.AddBuffer(64);
    schedule.Add(i == 0 ? MakeStep({}, {result})
                        : MakeStep({result - 1}, {result}));
  }
  const MemoryMap map = Place(schedule);
  EXPECT_EQ(map.scratch_bytes, 128);
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(map.scratch_offsets[i], i % 2 * 64);
  }
}

TEST(PlaceBuffers, BuffersInUseTogetherNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Schedule schedule;
    std::vector<std::pair<int, int>> lifetimes;
    for (int i = 0; i < 30; ++i) {
      schedule.AddBuffer(1 + static_cast<int64_t>(random() % 5000));
      const int first = static_cast<int>(random() % 40);
      lifetimes.emplace_back(first, first + static_cast<int>(random() % 10));
    }
    for (int step = 0; step < 50; ++step) {
      std::vector<BufferId> writes;
      for (int i = 0; i < 30; ++i) {
        if (lifetimes[i].first == step || lifetimes[i].second == step) {
          writes.push_back(i);
        }
      }
      schedule.Add(MakeStep({}, writes));
    }
    const MemoryMap map = Place(schedule);
    for (int i = 0; i < 30; ++i) {
      const int64_t begin = map.scratch_offsets[i];
      const int64_t end = begin + schedule.buffers()[i].bytes;
      EXPECT_LE(end, map.scratch_bytes);
      EXPECT_EQ(begin % 64, 0);
      for (int j = 0; j < i; ++j) {
        if (lifetimes[i].first > lifetimes[j].second ||
            lifetimes[j].first > lifetimes[i].second) {
          continue;
        }
        const int64_t other = map.scratch_offsets[j];
        EXPECT_TRUE(end <= other ||
                    other + schedule.buffers()[j].bytes <= begin);
      }
    }
  }
}

}  // namespace
}  // namespace convgrad::onednn
