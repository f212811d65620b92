#include "server/scheduling/active_job.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/core/status.h"
#include "gtest/gtest.h"
#include "tests/server/scheduling/scheduler_fixture.h"
#include "tests/server/scheduling/slow_backend.h"

namespace convgrad {
namespace {

constexpr double kSlow = 1;  // Each item is a slice.
constexpr double kFast = 1e30;

// The tensors of an operation: small integers as operands, NaN in results.
class Tensors {
 public:
  explicit Tensors(const ConvOperation& operation) {
    for (Operand which : kAllOperands) {
      const auto& tensor = operation.operand(which);
      if (!tensor) continue;
      Buffer buffer = *pool_.Take(*ByteSize(*tensor));
      FillSmallIntegers(tensor->dtype, &buffer);
      buffers_.operands[static_cast<size_t>(which)] = buffer.data();
      kept_.push_back(std::move(buffer));
    }
    for (const ResultRequest& request : operation.results) {
      Buffer buffer = *pool_.Take(*ByteSize(request.descriptor));
      std::fill_n(buffer.data(), buffer.size(), std::byte{0xff});
      buffers_.results.push_back(buffer.data());
      kept_.push_back(std::move(buffer));
    }
  }

  const RunBuffers& buffers() const { return buffers_; }

 private:
  static void FillSmallIntegers(DataType dtype, Buffer* buffer) {
    const int64_t count = buffer->size() / ByteSizeOf(dtype);
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i * 7 % 5 - 2);
      StoreElement(dtype, buffer->data(), i, value);
    }
  }
  static void StoreElement(DataType dtype, std::byte* data, int64_t index,
                           float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (dtype == DataType::kF32) {
      std::memcpy(data + 4 * index, &bits, 4);
    } else {
      // bf16 takes the upper half; the lower half of these integers is 0.
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(data + 2 * index, &upper, 2);
    }
  }

  BufferPool pool_{0};
  std::vector<Buffer> kept_;
  RunBuffers buffers_{kOperandCount};
};

// A job of `operation` in `tensors` on the reference backend.
struct SlowJob {
  SlowJob(const ConvOperation& operation, double macs_per_second,
          const Tensors& tensors, CallMemory* memory,
          const InspectionRequest& inspection = {})
      : backend(MakeSlow("reference", macs_per_second)),
        means{&plans, memory, &rates, 1, absl::Now} {
    Job job;
    job.operation = std::make_shared<ConvOperation>(operation);
    job.backend = backend.get();
    job.buffers = tensors.buffers();
    job.inspection = inspection;
    run.emplace(std::move(job), means);
  }

  absl::Status RunAll() {
    while (run->slices_left() > 0) RETURN_IF_ERROR(run->RunSlice(0));
    return absl::OkStatus();
  }

  const std::unique_ptr<Backend> backend;
  PlanCache plans{1 << 20};
  WorkRates rates{absl::Now};
  const WorkMeans means;
  std::optional<ActiveJob> run;
};

class ActiveJobTest : public testing::Test {
 protected:
  ActiveJobTest()
      : memory_(1 << 20, 0, 0,
                [](const std::function<void()>& task) { task(); }) {}

  // Runs `operation` in `tensors`. Returns the number of slices.
  int64_t Run(const ConvOperation& operation, double macs_per_second,
              const Tensors& tensors) {
    SlowJob job(operation, macs_per_second, tensors, &memory_);
    const int64_t slices = job.run->slices_left();
    const absl::Status status = job.RunAll();
    EXPECT_TRUE(status.ok()) << status;
    return slices;
  }

  void ExpectTheSameInSlices(const ConvOperation& operation) {
    ASSERT_TRUE(Validate(operation).ok()) << Validate(operation);
    const Tensors whole(operation);
    const Tensors sliced(operation);
    EXPECT_EQ(Run(operation, kFast, whole), 1);
    EXPECT_EQ(Run(operation, kSlow, sliced), operation.problem.batch);
    for (size_t i = 0; i < operation.results.size(); ++i) {
      const int64_t size = *ByteSize(operation.results[i].descriptor);
      EXPECT_EQ(std::memcmp(whole.buffers().results[i],
                            sliced.buffers().results[i], size),
                0)
          << NameOf(operation.results[i].which);
    }
    EXPECT_EQ(memory_.budget.used_bytes(), 0);
    EXPECT_EQ(memory_.pool.outstanding(), 0);
  }

  CallMemory memory_;
};

ConvOperation Whole(absl::string_view problem, Direction direction,
                    DataType dtype = DataType::kF32,
                    Layout layout = Layout::kNCX) {
  return WholeOperation(*Parse(problem), direction, dtype, layout);
}

TEST_F(ActiveJobTest, SlicesGiveTheBitsOfTheWholeOnIntegers) {
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    // Items have 400 bytes, whose slices aren't aligned, and 1024 bytes.
    ExpectTheSameInSlices(Whole("conv2d_n5_c4_o3_i5_k3_b_relu", direction));
    ExpectTheSameInSlices(Whole("conv2d_n4_c16_o16_i4_k3_p1_b", direction));
    ExpectTheSameInSlices(Whole("conv2d_n4_c4_o4_i5_k3_b4x1x1x1", direction,
                                DataType::kBF16, Layout::kNXC));
    ExpectTheSameInSlices(Whole("linear_n3_c7_o5_b", direction));
    ExpectTheSameInSlices(
        Whole("conv2d_n3_c4_o4_i5_k3_p1_b_res_relu", direction));
  }
}

TEST_F(ActiveJobTest, SumsAreScaledRoundedAndLaidOutOnce) {
  ConvOperation operation =
      Whole("conv2d_n5_c4_o3_i5_k3_b", Direction::kBackward, DataType::kBF16);
  for (ResultRequest& request : operation.results) {
    request.scale = 0.5f;
    request.descriptor.dtype = DataType::kBF16;
    if (request.which == Result::kGradWeight) {
      request.descriptor.layout = Layout::kXIO;
    }
  }
  ExpectTheSameInSlices(operation);
}

TEST_F(ActiveJobTest, CountsTheNonfiniteOfTheWhole) {
  const ConvOperation operation =
      Whole("conv2d_n4_c2_o2_i4_k3", Direction::kForward);
  const Tensors tensors(operation);
  auto* input = static_cast<float*>(const_cast<void*>(
      tensors.buffers().operands[PositionOf(Operand::kInput)]));
  input[0] = std::numeric_limits<float>::infinity();
  input[3 * 2 * 16] = std::numeric_limits<float>::infinity();
  InspectionRequest inspection;
  inspection.count_nonfinite = true;
  SlowJob job(operation, kSlow, tensors, &memory_, inspection);
  ASSERT_TRUE(job.RunAll().ok());
  // The count is one window of two channels in two items.
  EXPECT_EQ(job.run->outcome.findings.nonfinite_counts,
            std::vector<int64_t>{4});
}

TEST_F(ActiveJobTest, RefusesSumsBeyondTheBudget) {
  const ConvOperation operation =
      Whole("linear_n4_c512_o512", Direction::kBackward);
  const Tensors tensors(operation);
  SlowJob job(operation, kSlow, tensors, &memory_);
  EXPECT_EQ(job.run->RunSlice(0).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(job.run->outcome.planned);
}

// Tests on a worker.
class JobMemoryTest : public SchedulerTest {};

TEST_F(JobMemoryTest, TakesScratchOutOfTheBudgetAndReturnsIt) {
  PuppetTraits traits;
  traits.scratch_bytes = 100000;
  UseTraits(traits);
  Start();
  strings_.HoldRuns();
  Ending ending;
  Submit(&ending);
  strings_.AwaitRuns(1);
  EXPECT_EQ(memory_.budget.used_bytes(), BufferPool::CapacityFor(100000));
  EXPECT_EQ(memory_.pool.outstanding(), 1);
  strings_.Release();
  EXPECT_TRUE(ending.Await().status.ok());
  EXPECT_EQ(memory_.budget.used_bytes(), 0);
  EXPECT_EQ(memory_.pool.outstanding(), 0);
}

TEST_F(JobMemoryTest, ScratchOfAQueuedJobCountsForItsClient) {
  UseTraits({.scratch_bytes = 700000, .quanta = 2});
  CallMemory memory(
      1 << 20, 4, 0, [](const auto& task) { task(); }, nullptr, 0.5);
  Scheduler::Options options;
  options.workers.resize(1);
  Scheduler scheduler(std::move(options), &plans_, &memory);
  strings_.HoldRuns();
  Ending ending;
  Job job = MakeJob(&ending);
  job.client = "a";
  scheduler.Submit(std::move(job));
  strings_.AwaitRuns(1);
  std::optional<absl::StatusOr<Reservation>> own, other;
  for (auto [client, told] : {std::pair("a", &own), {"b", &other}}) {
    EXPECT_TRUE(
        memory.budget
            .Wait({1, Priority::kBatch, absl::InfiniteFuture(), client},
                  [told = told](auto bytes) { *told = std::move(bytes); })
            .ok());
  }
  EXPECT_FALSE(own.has_value());
  EXPECT_TRUE(other.has_value());
  strings_.Release();
  EXPECT_TRUE(ending.Await().status.ok());
  scheduler.Shutdown();
  EXPECT_TRUE(own.has_value());
}

TEST_F(JobMemoryTest, OnlyAJobThatHasBegunMayExceedTheShareOfItsClient) {
  UseTraits({.scratch_bytes = 1000, .macs_per_second = kSlow});
  CallMemory memory(
      1 << 20, 1, 0, [](const auto& task) { task(); }, nullptr, 0.01);
  WorkRates rates{absl::Now};
  const WorkMeans means{&plans_, &memory, &rates, 1, absl::Now};
  Ending unused;
  const auto make = [&](bool continues) {
    Job job = MakeLongJob(&unused);
    job.client = "a";
    job.continues = continues;
    return ActiveJob(std::move(job), means);
  };
  ActiveJob begun = make(false), second = make(true), fresh = make(false);
  const auto other_call = memory.budget.TryReserve(100000, {"a"});
  ASSERT_TRUE(begun.RunSlice(0).ok());
  const auto waiter = memory.budget.Wait(
      {1 << 20, Priority::kBatch, absl::InfiniteFuture(), "b"}, [](auto) {});
  ASSERT_TRUE(waiter.ok());
  EXPECT_TRUE(begun.RunSlice(0).ok());
  EXPECT_TRUE(second.RunSlice(0).ok());
  EXPECT_EQ(fresh.RunSlice(0).code(), absl::StatusCode::kResourceExhausted);
  memory.budget.CancelWait(*waiter);
}

TEST_F(ActiveJobTest, SumsCountForTheClient) {
  CallMemory memory(
      1 << 20, 1, 0, [](const auto& task) { task(); }, nullptr, 0.01);
  const ConvOperation operation =
      Whole("linear_n4_c64_o64", Direction::kBackward);
  const Tensors tensors(operation);
  SlowJob job(operation, kSlow, tensors, &memory);
  job.run->job.client = "a";
  ASSERT_TRUE(job.run->RunSlice(0).ok());
  std::optional<absl::StatusOr<Reservation>> own;
  EXPECT_TRUE(memory.budget
                  .Wait({1, Priority::kBatch, absl::InfiniteFuture(), "a"},
                        [&](auto bytes) { own = std::move(bytes); })
                  .ok());
  EXPECT_FALSE(own.has_value());
  EXPECT_TRUE(job.RunAll().ok());
  job.run.reset();
  EXPECT_TRUE(own.has_value());
}

TEST_F(JobMemoryTest, PaysForAPlanThatTheCacheDoesNotKeep) {
  PuppetTraits traits;
  traits.resident_bytes = (1 << 20) + 1;
  UseTraits(traits);
  PlanCache small(1 << 20);
  CallMemory memory(2 << 20, 0, 0, [](const auto& task) { task(); });
  Scheduler::Options options;
  options.workers.resize(1);
  Scheduler scheduler(std::move(options), &small, &memory);
  strings_.HoldRuns();
  Ending ending;
  scheduler.Submit(MakeJob(&ending));
  strings_.AwaitRuns(1);
  EXPECT_EQ(memory.budget.used_bytes(), traits.resident_bytes);
  strings_.Release();
  EXPECT_TRUE(ending.Await().status.ok());
  scheduler.Shutdown();
  EXPECT_EQ(memory.budget.used_bytes(), 0);
}

TEST_F(JobMemoryTest, RefusesScratchBeyondTheBudget) {
  PuppetTraits traits;
  traits.scratch_bytes = 2 << 20;
  UseTraits(traits);
  Start();
  Ending ending;
  Submit(&ending);
  EXPECT_EQ(ending.AwaitCode(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ending.AwaitReason(), Reason::kLimitExceeded);
}

}  // namespace
}  // namespace convgrad
