#include "server/scheduling/plan_cache.h"

#include <chrono>
#include <cmath>
#include <future>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

PuppetTraits PlansOf(int64_t bytes) {
  PuppetTraits traits;
  traits.resident_bytes = bytes;
  return traits;
}

TEST(PlanCache, MakesAPlanOnce) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings);
  PlanCache cache(1000);
  const auto first = cache.Get(backend, TinyOperation(), {});
  const auto second = cache.Get(backend, TinyOperation(), {});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->hit);
  EXPECT_TRUE(second->hit);
  EXPECT_EQ(first->plan, second->plan);
  EXPECT_EQ(strings.plans(), 1);
  EXPECT_EQ(cache.bytes(), 100);
  EXPECT_EQ(cache.plans(), 1);
}

TEST(PlanCache, ShrinksAtOnce) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings);
  PlanCache cache(1000);
  for (int batch = 1; batch <= 3; ++batch) {
    ASSERT_TRUE(cache.Get(backend, TinyOperation(batch), {}).ok());
  }
  cache.SetMaxBytes(150);
  EXPECT_EQ(cache.bytes(), 100);
  EXPECT_TRUE(cache.Get(backend, TinyOperation(3), {})->hit);
  EXPECT_FALSE(cache.Get(backend, TinyOperation(1), {})->hit);
  EXPECT_EQ(cache.bytes(), 100);
}

TEST(PlanCache, TellsApartWhatPlansDependOn) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings);
  PuppetTraits traits;
  traits.name = "other";
  const PuppetBackend other(&strings, traits);
  PlanCache cache(1000);
  ConvOperation scaled = TinyOperation();
  scaled.results[0].scale = 0.5f;
  ConvOperation nearly = scaled;
  nearly.results[0].scale = std::nextafter(0.5f, 1.0f);
  ASSERT_TRUE(cache.Get(backend, TinyOperation(), {}).ok());
  ASSERT_TRUE(cache.Get(backend, TinyOperation(2), {}).ok());
  ASSERT_TRUE(cache.Get(other, TinyOperation(), {}).ok());
  ASSERT_TRUE(cache.Get(backend, TinyOperation(), {.threads = 2}).ok());
  ASSERT_TRUE(cache.Get(backend, scaled, {}).ok());
  ASSERT_TRUE(cache.Get(backend, nearly, {}).ok());
  EXPECT_EQ(strings.plans(), 6);
}

TEST(PlanCache, DropsTheLongestUnusedBeyondItsBound) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings, PlansOf(40));
  PlanCache cache(100);
  ASSERT_TRUE(cache.Get(backend, TinyOperation(1), {}).ok());
  ASSERT_TRUE(cache.Get(backend, TinyOperation(2), {}).ok());
  ASSERT_TRUE(cache.Get(backend, TinyOperation(1), {})->hit);
  ASSERT_TRUE(cache.Get(backend, TinyOperation(3), {}).ok());
  EXPECT_EQ(cache.bytes(), 80);
  EXPECT_EQ(cache.plans(), 2);
  EXPECT_TRUE(cache.Get(backend, TinyOperation(1), {})->hit);
  EXPECT_FALSE(cache.Get(backend, TinyOperation(2), {})->hit);
}

TEST(PlanCache, FreesPlansWithoutItsLock) {
  PuppetStrings strings;
  PlanCache cache(100);
  std::vector<std::thread> others;
  PuppetTraits traits = PlansOf(60);
  traits.on_free = [&] {
    std::promise<void> promise;
    const std::future<void> seen = promise.get_future();
    others.emplace_back([&cache, promise = std::move(promise)]() mutable {
      cache.plans();
      promise.set_value();
    });
    EXPECT_EQ(seen.wait_for(std::chrono::seconds(5)),
              std::future_status::ready);
  };
  const PuppetBackend backend(&strings, traits);
  ASSERT_TRUE(cache.Get(backend, TinyOperation(1), {}).ok());
  ASSERT_TRUE(cache.Get(backend, TinyOperation(2), {}).ok());
  EXPECT_EQ(others.size(), 1u);
  cache.SetMaxBytes(0);
  EXPECT_EQ(others.size(), 2u);
  for (std::thread& other : others) other.join();
}

TEST(PlanCache, HandsOutButDoesNotKeepWhatIsLargerThanItsBound) {
  PuppetStrings strings;
  const PuppetBackend small(&strings, PlansOf(40));
  PuppetTraits traits = PlansOf(101);
  traits.name = "large";
  const PuppetBackend large(&strings, traits);
  PlanCache cache(100);
  ASSERT_TRUE(cache.Get(small, TinyOperation(), {}).ok());
  const auto lookup = cache.Get(large, TinyOperation(), {});
  ASSERT_TRUE(lookup.ok());
  EXPECT_NE(lookup->plan, nullptr);
  EXPECT_EQ(cache.plans(), 1);
  EXPECT_TRUE(cache.Get(small, TinyOperation(), {})->hit);
}

TEST(PlanCache, ReportsAFailureAndForgetsIt) {
  PuppetStrings strings;
  PuppetTraits traits;
  traits.plan_status = absl::InternalError("no");
  const PuppetBackend backend(&strings, traits);
  PlanCache cache(100);
  EXPECT_EQ(cache.Get(backend, TinyOperation(), {}).status(),
            traits.plan_status);
  EXPECT_FALSE(cache.Get(backend, TinyOperation(), {}).ok());
  EXPECT_EQ(strings.plans(), 2);
  EXPECT_EQ(cache.plans(), 0);
}

// Returns the reason of an error.
Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail ? detail->reason : Reason::kInternal;
}

TEST(PlanCache, FindsOnlyPlansThatAreMade) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings);
  PlanCache cache(200);
  EXPECT_EQ(cache.Find(backend, TinyOperation(), {}), nullptr);
  const auto first = cache.Get(backend, TinyOperation(1), {});
  EXPECT_TRUE(cache.Get(backend, TinyOperation(2), {}).ok());
  EXPECT_EQ(cache.Find(backend, TinyOperation(1), {}), first->plan);
  strings.HoldPlans();
  std::thread maker(
      [&] { EXPECT_TRUE(cache.Get(backend, TinyOperation(3), {}).ok()); });
  strings.AwaitPlans(3);
  EXPECT_EQ(cache.Find(backend, TinyOperation(3), {}), nullptr);
  strings.Release();
  maker.join();
  // The found plan counts as used.
  EXPECT_NE(cache.Find(backend, TinyOperation(1), {}), nullptr);
  EXPECT_EQ(cache.Find(backend, TinyOperation(2), {}), nullptr);
}

TEST(PlanCache, TakesWhatPlanningTakesFromTheBudget) {
  PuppetStrings strings;
  PuppetTraits traits;
  traits.planning_bytes = 600;
  const PuppetBackend backend(&strings, traits);
  traits.planning_bytes = 1001;
  const PuppetBackend greedy(&strings, traits);
  MemoryBudget budget(1000, 0);
  PlanCache cache(1000, &budget);
  EXPECT_EQ(ReasonOf(cache.Get(greedy, TinyOperation(2), {}).status()),
            Reason::kLimitExceeded);
  strings.HoldPlans();
  std::thread maker(
      [&] { EXPECT_TRUE(cache.Get(backend, TinyOperation(), {}).ok()); });
  strings.AwaitPlans(1);
  EXPECT_EQ(budget.used_bytes(), 600);
  EXPECT_EQ(ReasonOf(cache.Get(backend, TinyOperation(2), {}).status()),
            Reason::kBusy);
  strings.Release();
  maker.join();
  EXPECT_EQ(budget.used_bytes(), 0);
  // A cached plan takes no memory.
  const auto all = budget.TryReserve(1000);
  EXPECT_TRUE(cache.Get(backend, TinyOperation(), {})->hit);
  EXPECT_EQ(strings.plans(), 1);
}

TEST(PlanCache, MakesAPlanOnceForTwoThreadsAtOnce) {
  PuppetStrings strings;
  const PuppetBackend backend(&strings);
  PlanCache cache(1000);
  strings.HoldPlans();
  std::shared_ptr<const Plan> plans[2];
  std::thread maker(
      [&] { plans[0] = cache.Get(backend, TinyOperation(), {})->plan; });
  strings.AwaitPlans(1);
  std::thread waiter(
      [&] { plans[1] = cache.Get(backend, TinyOperation(), {})->plan; });
  strings.Release();
  maker.join();
  waiter.join();
  EXPECT_EQ(strings.plans(), 1);
  EXPECT_NE(plans[0], nullptr);
  EXPECT_EQ(plans[0], plans[1]);
}

}  // namespace
}  // namespace convgrad
