#include "server/scheduling/weight_cache.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The cache knows a plan by its address and by its prepared weights.
class PreparingPlan final : public Plan {
 public:
  explicit PreparingPlan(int64_t bytes) : bytes_(bytes) {}
  absl::StatusOr<RunTimes> Run(const RunBuffers&) const override {
    return RunTimes();
  }
  int64_t scratch_bytes() const override { return 0; }
  int64_t prepared_weight_bytes() const override { return bytes_; }
  int64_t resident_bytes() const override { return 0; }
  absl::string_view implementation() const override { return "preparing"; }

 private:
  const int64_t bytes_;
};

class WeightCacheTest : public testing::Test {
 protected:
  static std::shared_ptr<const Plan> PlanOf(int64_t bytes) {
    return std::make_shared<PreparingPlan>(bytes);
  }
  static std::vector<std::byte> Weight(int fill, int64_t bytes = kMiB) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(fill));
  }
  // Leases `weight` twice, and stores `mark` as its prepared form.
  void Keep(WeightCache* cache, const std::string& client,
            const std::shared_ptr<const Plan>& plan,
            const std::vector<std::byte>& weight, int mark) {
    EXPECT_TRUE(cache->Lease(client, plan, weight).bytes().empty());
    WeightLease lease = cache->Lease(client, plan, weight);
    ASSERT_EQ(std::ssize(lease.bytes()), plan->prepared_weight_bytes());
    EXPECT_FALSE(lease.is_prepared());
    lease.bytes()[0] = static_cast<std::byte>(mark);
    lease.SetPrepared();
  }
  // Returns the mark of the kept form; -1 if none is kept.
  static int MarkOf(const WeightLease& lease) {
    return lease.is_prepared() ? static_cast<int>(lease.bytes()[0]) : -1;
  }

  const std::shared_ptr<const Plan> plan_ = PlanOf(kMiB);
};

TEST_F(WeightCacheTest, KeepsWhatComesTwice) {
  WeightCache cache(4 * kMiB);
  Keep(&cache, "a", plan_, Weight(1), 11);
  Keep(&cache, "a", plan_, Weight(2), 22);
  EXPECT_EQ(MarkOf(cache.Lease("a", plan_, Weight(1))), 11);
  EXPECT_EQ(MarkOf(cache.Lease("a", plan_, Weight(2))), 22);
  EXPECT_EQ(cache.bytes(), 2 * kMiB);
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_EQ(cache.misses(), 2);
}

TEST_F(WeightCacheTest, ShrinksAtOnceButForWhatIsInUse) {
  WeightCache cache(4 * kMiB);
  for (int i = 1; i <= 3; ++i) Keep(&cache, "a", plan_, Weight(i), i);
  {
    const WeightLease used = cache.Lease("a", plan_, Weight(1));
    cache.SetMaxBytes(0);
    EXPECT_EQ(cache.bytes(), kMiB);
    EXPECT_EQ(MarkOf(used), 1);
  }
  cache.SetMaxBytes(0);
  EXPECT_EQ(cache.bytes(), 0);
}

TEST_F(WeightCacheTest, OneChangedBitIsAnotherWeight) {
  WeightCache cache(4 * kMiB);
  std::vector<std::byte> weight = Weight(1);
  Keep(&cache, "a", plan_, weight, 11);
  // The changed byte isn't in a sample.
  weight[kMiB - 100] ^= std::byte{1};
  EXPECT_FALSE(cache.Lease("a", plan_, weight).is_prepared());
}

TEST_F(WeightCacheTest, ClientsAndPlansShareNothing) {
  WeightCache cache(4 * kMiB);
  Keep(&cache, "a", plan_, Weight(1), 11);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(cache.Lease("b", plan_, Weight(1)).is_prepared());
    EXPECT_FALSE(cache.Lease("a", PlanOf(kMiB), Weight(1)).is_prepared());
  }
}

TEST_F(WeightCacheTest, APlanInADroppedOnesPlaceFindsNothing) {
  WeightCache cache(4 * kMiB);
  alignas(PreparingPlan) std::byte place[sizeof(PreparingPlan)];
  const auto make = [&] {
    return std::shared_ptr<const Plan>(
        new (place) PreparingPlan(kMiB),
        [](const Plan* plan) { std::destroy_at(plan); });
  };
  Keep(&cache, "a", make(), Weight(1), 11);
  const auto next = make();
  const WeightLease lease = cache.Lease("a", next, Weight(1));
  EXPECT_FALSE(lease.is_prepared());
  EXPECT_FALSE(lease.bytes().empty());
  EXPECT_EQ(cache.bytes(), kMiB);
}

TEST_F(WeightCacheTest, DropsTheLongestUnusedButNotWhatIsLeased) {
  WeightCache cache(2 * kMiB);
  Keep(&cache, "a", plan_, Weight(1), 11);
  Keep(&cache, "a", plan_, Weight(2), 22);
  const WeightLease used = cache.Lease("a", plan_, Weight(1));
  Keep(&cache, "a", plan_, Weight(3), 33);
  EXPECT_FALSE(cache.Lease("a", plan_, Weight(2)).is_prepared());
  EXPECT_EQ(MarkOf(used), 11);
  EXPECT_EQ(MarkOf(cache.Lease("a", plan_, Weight(1))), 11);
  EXPECT_LE(cache.bytes(), 2 * kMiB);
}

TEST_F(WeightCacheTest, ForgetsWhatNobodyFilled) {
  WeightCache cache(2 * kMiB);
  EXPECT_TRUE(cache.Lease("a", plan_, Weight(1)).bytes().empty());
  {
    const WeightLease filling = cache.Lease("a", plan_, Weight(1));
    EXPECT_FALSE(filling.bytes().empty());
    // Meanwhile other runs prepare their own.
    EXPECT_TRUE(cache.Lease("a", plan_, Weight(1)).bytes().empty());
  }
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_FALSE(cache.Lease("a", plan_, Weight(1)).bytes().empty());
}

TEST_F(WeightCacheTest, NumbersStandForBytes) {
  WeightCache cache(4 * kMiB);
  const std::vector<uint64_t> one = {7}, other = {8};
  {
    WeightLease lease = cache.Lease("a", plan_, one);
    ASSERT_FALSE(lease.bytes().empty());
    lease.bytes()[0] = std::byte{11};
    lease.SetPrepared();
  }
  EXPECT_EQ(MarkOf(cache.Lease("a", plan_, one)), 11);
  EXPECT_FALSE(cache.Lease("a", plan_, other).is_prepared());
  EXPECT_FALSE(cache.Lease("b", plan_, one).is_prepared());
}

TEST_F(WeightCacheTest, ANetworksWeightsAreKeptWhenTheyComeAgain) {
  WeightCache cache(4 * kMiB);
  const std::vector<uint64_t> weights = {7, 8, 9}, updated = {7, 8, 10};
  EXPECT_TRUE(cache.Lease("a", plan_, weights).bytes().empty());
  {
    WeightLease lease = cache.Lease("a", plan_, weights);
    ASSERT_FALSE(lease.bytes().empty());
    lease.bytes()[0] = std::byte{11};
    lease.SetPrepared();
  }
  EXPECT_EQ(MarkOf(cache.Lease("a", plan_, weights)), 11);
  EXPECT_TRUE(cache.Lease("a", plan_, updated).bytes().empty());
}

TEST_F(WeightCacheTest, LeavesAloneWhatIsNotWorthIt) {
  WeightCache cache(2 * kMiB);
  const auto expect_none = [&](const std::shared_ptr<const Plan>& plan,
                               const std::vector<std::byte>& weight) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(cache.Lease("a", plan, weight).bytes().empty());
    }
  };
  expect_none(PlanOf(0), Weight(1));
  expect_none(PlanOf(3 * kMiB), Weight(1));
  expect_none(plan_, Weight(1, 1000));
}

}  // namespace
}  // namespace convgrad
