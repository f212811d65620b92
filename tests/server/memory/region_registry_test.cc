#include "server/memory/region_registry.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

constexpr int64_t kBudgetBytes = 1 << 20;
constexpr int64_t kMaxBytes = 512 << 10;
constexpr int64_t kPage = 4096;

class RegionRegistryTest : public testing::Test {
 protected:
  RegionRegistry::Registration MustCreate(int64_t byte_length) {
    auto created = registry_.Create(byte_length);
    EXPECT_TRUE(created.ok()) << created.status();
    return *std::move(created);
  }
  void ExpectRefused(int64_t byte_length, absl::StatusCode code,
                     Reason reason) {
    const absl::Status status = registry_.Create(byte_length).status();
    EXPECT_EQ(status.code(), code) << status;
    ASSERT_TRUE(DetailOf(status).has_value()) << status;
    EXPECT_EQ(DetailOf(status)->reason, reason) << status;
    EXPECT_EQ(registry_.regions(), 0);
    EXPECT_EQ(registry_.region_bytes(), 0);
  }
  // Maps a region as its client does.
  static std::byte* Map(const FileDescriptor& file, int64_t bytes) {
    void* mapping =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    EXPECT_NE(mapping, MAP_FAILED);
    return static_cast<std::byte*>(mapping);
  }

  MemoryBudget budget_{kBudgetBytes, 0};
  RegionRegistry registry_{&budget_, kMaxBytes};
};

TEST_F(RegionRegistryTest, FindsWhatItCreatedUntilItIsRemoved) {
  const auto made = MustCreate(kPage + 1);
  const auto region = registry_.Find(made.id);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->size(), kPage + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->data()) % kPage, 0u);
  EXPECT_EQ(registry_.regions(), 1);
  EXPECT_EQ(registry_.region_bytes(), 2 * kPage);
  registry_.Remove(made.id);
  EXPECT_EQ(registry_.Find(made.id), nullptr);
  EXPECT_EQ(registry_.regions(), 0);
  EXPECT_EQ(registry_.region_bytes(), 0);
  registry_.Remove(made.id);
  EXPECT_EQ(registry_.region_bytes(), 0);
}

TEST_F(RegionRegistryTest, GivesIdsThatDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) ids.insert(MustCreate(1).id);
  EXPECT_EQ(ids.size(), 20u);
  for (const std::string& id : ids) EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(registry_.Find(std::string(16, '\0')), nullptr);
  EXPECT_EQ(registry_.Find(""), nullptr);
}

TEST_F(RegionRegistryTest, SharesItsBytesWithTheClient) {
  const auto made = MustCreate(kPage);
  const auto region = registry_.Find(made.id);
  std::byte* client = Map(made.file, kPage);
  EXPECT_TRUE(std::all_of(client, client + kPage,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  client[kPage - 1] = std::byte{7};
  EXPECT_EQ(region->data()[kPage - 1], std::byte{7});
  region->data()[0] = std::byte{8};
  EXPECT_EQ(client[0], std::byte{8});
  munmap(client, kPage);
}

TEST_F(RegionRegistryTest, ReadsALittleBeyondARegionsEnd) {
  const auto region = registry_.Find(MustCreate(kPage).id);
  EXPECT_EQ(region->data()[region->size() + 63], std::byte{0});
}

TEST_F(RegionRegistryTest, SealsTheSize) {
  const auto made = MustCreate(3 * kPage);
  const int file = made.file.get();
  EXPECT_NE(ftruncate(file, kPage), 0);
  EXPECT_NE(ftruncate(file, 0), 0);
  EXPECT_NE(ftruncate(file, 4 * kPage), 0);
  EXPECT_NE(fallocate(file, 0, 0, 4 * kPage), 0);
  // The client can't add a seal: F_SEAL_WRITE would make its results read-only.
  EXPECT_NE(fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(registry_.Find(made.id)->data()[3 * kPage - 1], std::byte{0});
}

TEST_F(RegionRegistryTest, SurvivesHolesPunchedByTheClient) {
  const auto made = MustCreate(2 * kPage);
  const auto region = registry_.Find(made.id);
  region->data()[0] = std::byte{1};
  ASSERT_EQ(fallocate(made.file.get(),
                      FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * kPage),
            0);
  EXPECT_EQ(region->data()[0], std::byte{0});
  region->data()[kPage] = std::byte{2};
  EXPECT_EQ(region->data()[kPage], std::byte{2});
}

TEST_F(RegionRegistryTest, TakesItsBytesFromTheBudget) {
  const auto made = MustCreate(kPage + 1);
  EXPECT_EQ(budget_.used_bytes(), 2 * kPage);
  registry_.Remove(made.id);
  EXPECT_EQ(budget_.used_bytes(), 0);
}

TEST_F(RegionRegistryTest, KeepsTheBytesOfARunningCall) {
  const auto made = MustCreate(kPage);
  auto used_by_call = registry_.Find(made.id);
  registry_.Remove(made.id);
  EXPECT_EQ(budget_.used_bytes(), kPage);
  used_by_call->data()[0] = std::byte{1};
  used_by_call.reset();
  EXPECT_EQ(budget_.used_bytes(), 0);
}

TEST_F(RegionRegistryTest, TakesThePagesFromAClientThatKeepsItsMapping) {
  const auto made = MustCreate(kPage);
  std::byte* client = Map(made.file, kPage);
  client[0] = std::byte{9};
  registry_.Remove(made.id);
  unsigned char resident = 1;
  EXPECT_EQ(mincore(client, kPage, &resident), 0);
  EXPECT_EQ(resident & 1, 0) << "the page still takes memory";
  EXPECT_EQ(client[0], std::byte{0});
  munmap(client, kPage);
}

TEST_F(RegionRegistryTest, RefusesLengthsThatCannotBe) {
  for (int64_t length : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    ExpectRefused(length, absl::StatusCode::kInvalidArgument,
                  Reason::kOutOfRange);
  }
  for (int64_t length : {kMaxBytes + 1, INT64_MAX}) {
    ExpectRefused(length, absl::StatusCode::kResourceExhausted,
                  Reason::kLimitExceeded);
  }
}

TEST_F(RegionRegistryTest, RefusesMoreThanItsLimitTogether) {
  const auto made = MustCreate(kMaxBytes);
  const absl::Status status = registry_.Create(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(status)->reason, Reason::kBusy);
  EXPECT_EQ(budget_.used_bytes(), kMaxBytes);
  registry_.Remove(made.id);
  MustCreate(kMaxBytes);
}

TEST_F(RegionRegistryTest, RefusesWhatTheBudgetHasNot) {
  {
    const auto taken = budget_.TryReserve(kBudgetBytes - kPage);
    ASSERT_TRUE(taken.ok());
    ExpectRefused(2 * kPage, absl::StatusCode::kResourceExhausted,
                  Reason::kBusy);
    EXPECT_EQ(budget_.used_bytes(), kBudgetBytes - kPage);
  }
  MustCreate(2 * kPage);
}

}  // namespace
}  // namespace convgrad
