#include "server/memory/buffer_pool.h"

#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "backends/core/steady_now.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Buffer MustTake(BufferPool& pool, int64_t size) {
  absl::StatusOr<Buffer> buffer = pool.Take(size);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(BufferPool, GivesAlignedWritableBytesOfTheSizeAskedFor) {
  BufferPool pool(64 * kMiB);
  for (int64_t size : {1, 63, 64, 1000, 65537, 4194304, 5000001}) {
    const Buffer buffer = MustTake(pool, size);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::memset(buffer.data(), 0xff, size);
  }
}

TEST(BufferPool, PutsLargeBuffersOnHugePages) {
  BufferPool pool(0);
  const Buffer buffer = MustTake(pool, 9 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 * kMiB), 0u);
}

TEST(BufferPool, GivesNullForNoBytes) {
  BufferPool pool(kMiB);
  const Buffer buffer = MustTake(pool, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(pool.outstanding(), 0);
}

TEST(BufferPool, RoundsUpByAnEighthAtMost) {
  for (int64_t size = 513; size < 300 * kMiB; size = size * 9 / 8 + 1) {
    const int64_t capacity = BufferPool::CapacityFor(size);
    EXPECT_GE(capacity, size);
    EXPECT_LE(capacity, size + size / 8) << size;
    EXPECT_EQ(capacity % 64, 0);
    EXPECT_EQ(BufferPool::CapacityFor(capacity), capacity);
  }
  EXPECT_EQ(BufferPool::CapacityFor(0), 0);
  EXPECT_EQ(BufferPool::CapacityFor(1), 64);
}

TEST(BufferPool, ReusesABufferOfTheSameClass) {
  BufferPool pool(64 * kMiB);
  const std::byte* first = MustTake(pool, kMiB).data();
  EXPECT_EQ(pool.idle_bytes(), kMiB);
  const Buffer second = MustTake(pool, kMiB - 1);
  EXPECT_EQ(second.data(), first);
  EXPECT_EQ(pool.idle_bytes(), 0);
  EXPECT_EQ(pool.outstanding_bytes(), kMiB);
}

TEST(BufferPool, CountsWhatIsOutstanding) {
  BufferPool pool(0);
  {
    const Buffer one = MustTake(pool, 100);
    const Buffer two = MustTake(pool, 8 * kMiB);
    EXPECT_EQ(pool.outstanding(), 2);
    EXPECT_EQ(pool.outstanding_bytes(), 128 + 8 * kMiB);
  }
  EXPECT_EQ(pool.outstanding(), 0);
  EXPECT_EQ(pool.outstanding_bytes(), 0);
}

TEST(BufferPool, GivesUpTheLongestUnusedBeyondItsLimit) {
  BufferPool pool(3 * kMiB);
  {
    const Buffer large = MustTake(pool, 2 * kMiB);
    // The buffer returns first, so it is the longest unused one.
    MustTake(pool, kMiB);
  }
  EXPECT_EQ(pool.idle_bytes(), 3 * kMiB);
  MustTake(pool, 3 * kMiB / 2);
  EXPECT_EQ(pool.idle_bytes(), 3 * kMiB / 2);
}

TEST(BufferPool, KeepsNothingThatIsLargerThanItsLimit) {
  BufferPool pool(kMiB);
  MustTake(pool, 512 * 1024);
  MustTake(pool, 8 * kMiB);
  EXPECT_EQ(pool.idle_bytes(), 512 * 1024);
}

TEST(BufferPool, GivesUpWhatNobodyNeeds) {
  BufferPool pool(16 * kMiB);
  MustTake(pool, 2 * kMiB);
  const absl::Time between = SteadyNow();
  MustTake(pool, kMiB);
  pool.Release(between);
  EXPECT_EQ(pool.idle_bytes(), kMiB);
  pool.Release(absl::InfiniteFuture());
  EXPECT_EQ(pool.idle_bytes(), 0);
}

TEST(BufferPool, RefusesWhatTheSystemDoesNotHave) {
  BufferPool pool(0);
  const absl::StatusOr<Buffer> buffer = pool.Take(int64_t{1} << 60);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.outstanding(), 0);
}

// Records its calls, and pins at most a given number of buffers.
class CountingPinner final : public MemoryPinner {
 public:
  explicit CountingPinner(int most) : most_(most) {}

  bool Pin(void* data, int64_t bytes) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
    EXPECT_EQ(bytes % 4096, 0);
    if (static_cast<int>(pinned_.size()) == most_) return false;
    return pinned_.insert(data).second;
  }
  void Unpin(void* data) override { EXPECT_EQ(pinned_.erase(data), 1u); }

  int pinned() const { return static_cast<int>(pinned_.size()); }

 private:
  const int most_;
  std::set<void*> pinned_;
};

TEST(BufferPool, PinsWholePagesAsLongAsTheyExist) {
  const auto pinner = std::make_shared<CountingPinner>(2);
  {
    BufferPool pool(64 * kMiB, pinner);
    const Buffer small = MustTake(pool, kMiB);
    EXPECT_EQ(pinner->pinned(), 0);
    Buffer first = MustTake(pool, 5'000'001);
    const Buffer second = MustTake(pool, 9 * kMiB);
    EXPECT_EQ(pinner->pinned(), 2);
    // A buffer that can't be pinned is still usable.
    const Buffer third = MustTake(pool, 9 * kMiB);
    std::memset(third.data(), 1, third.size());
    EXPECT_EQ(pinner->pinned(), 2);
    first = Buffer();
    EXPECT_EQ(pinner->pinned(), 2);
    pool.Release(absl::InfiniteFuture());
    EXPECT_EQ(pinner->pinned(), 1);
    const Buffer fourth = MustTake(pool, 5'000'001);
    EXPECT_EQ(pinner->pinned(), 2);
  }
  EXPECT_EQ(pinner->pinned(), 0);
}

TEST(Buffer, GivesBackWhatItHeldWhenAssignedTo) {
  BufferPool pool(0);
  Buffer buffer = MustTake(pool, 1000);
  Buffer other = MustTake(pool, 2000);
  buffer = std::move(other);
  EXPECT_EQ(pool.outstanding(), 1);
  EXPECT_EQ(buffer.size(), 2000);
  buffer = Buffer();
  EXPECT_EQ(pool.outstanding(), 0);
}

TEST(BufferPool, ServesManyThreads) {
  BufferPool pool(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const int64_t size = 70000 + 1000 * ((i * 7 + t) % 30);
        const Buffer buffer = MustTake(pool, size);
        std::memset(buffer.data(), t, size);
        EXPECT_EQ(buffer.data()[size - 1], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.outstanding(), 0);
  EXPECT_LE(pool.idle_bytes(), kMiB);
}

}  // namespace
}  // namespace convgrad
