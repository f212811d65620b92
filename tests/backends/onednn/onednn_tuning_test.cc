// Timing, and plans that follow what was timed.
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/conv_operation.h"
#include "backends/onednn/onednn_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

using testing::HasSubstr;

constexpr PlanOptions kTimed = {
    .deterministic = false,
    .timing_bytes = std::numeric_limits<int64_t>::max()};

ConvOperation Backward(DataType dtype = DataType::kF32) {
  return WholeOperation(*Parse("conv2d_n2_c16_o32_i9x8_k3_p1_b_relu"),
                        Direction::kBackward, dtype, Layout::kNCX);
}

std::string ImplementationOf(const Backend& backend,
                             const PlanOptions& options) {
  const auto plan = backend.MakePlan(Backward(), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return std::string((*plan)->implementation());
}

// Returns what was timed, with `format` as the choice of every pass.
std::string AllIn(absl::string_view format, absl::string_view tuning) {
  const std::string choice = absl::StrCat(" = ", format);
  return absl::StrReplaceAll(
      tuning, {{" = any", choice}, {" = nxc", choice}, {" = ncx", choice}});
}

// Memory for floats, aligned as plans want it.
class Floats {
 public:
  explicit Floats(int64_t count) : lines_((count + 15) / 16) {}
  float* data() { return reinterpret_cast<float*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  std::vector<Line> lines_;
};

// Returns all results for operands of small integers: every sum is exact, in
// whatever order.
std::vector<float> ResultsOf(const Backend& backend) {
  const ConvOperation operation = Backward();
  const auto plan = backend.MakePlan(operation, PlanOptions());
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<Floats> memory;
  RunBuffers buffers(kOperandCount);
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    const int64_t count = ElementCount(*operation.operand(which));
    memory.emplace_back(count);
    const int modulus = 5 + 2 * static_cast<int>(which);
    for (int64_t i = 0; i < count; ++i) {
      memory.back().data()[i] = static_cast<float>(i % modulus - 2);
    }
    buffers.operands[static_cast<size_t>(which)] = memory.back().data();
  }
  for (const ResultRequest& request : operation.results) {
    memory.emplace_back(ElementCount(request.descriptor));
    buffers.results.push_back(memory.back().data());
  }
  Floats scratch((*plan)->scratch_bytes() / 4);
  buffers.scratch = absl::MakeSpan(reinterpret_cast<std::byte*>(scratch.data()),
                                   (*plan)->scratch_bytes());
  EXPECT_TRUE((*plan)->Run(buffers).ok());
  std::vector<float> results;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const auto* begin = static_cast<const float*>(buffers.results[i]);
    results.insert(results.end(), begin,
                   begin + ElementCount(operation.results[i].descriptor));
  }
  return results;
}

TEST(OnednnTuning, TimesEveryPassOnce) {
  const auto backend = *MakeOnednnBackend();
  ImplementationOf(*backend, kTimed);
  const std::string tuning = backend->tuning();
  EXPECT_THAT(tuning, HasSubstr("backward_data conv2d_n2_c16_o32"));
  EXPECT_THAT(tuning, HasSubstr("backward_weight conv2d_n2_c16_o32"));
  // Alone, and beside each other: then a copy of grad_output serves both.
  EXPECT_THAT(tuning, HasSubstr("out=f32:ncx threads="));
  EXPECT_THAT(tuning, HasSubstr("out=f32:ncx shared=out threads="));
  ImplementationOf(*backend, kTimed);
  EXPECT_EQ(backend->tuning(), tuning);
}

TEST(OnednnTuning, TimesNothingUnasked) {
  const auto backend = *MakeOnednnBackend();
  ImplementationOf(*backend, PlanOptions());
  ImplementationOf(*backend, {.deterministic = false, .timing_bytes = 1000});
  EXPECT_EQ(backend->tuning(), "");
}

TEST(OnednnTuning, WhatWasTimedDoesNotReachDeterministicPlans) {
  const auto backend = *MakeOnednnBackend();
  const std::string before = ImplementationOf(*backend, PlanOptions());
  ImplementationOf(*backend, kTimed);
  EXPECT_EQ(ImplementationOf(*backend, PlanOptions()), before);
}

TEST(OnednnTuning, PlansFollowWhatIsLoadedAndStayRight) {
  const auto timed = *MakeOnednnBackend();
  ImplementationOf(*timed, kTimed);
  const std::vector<float> expected = ResultsOf(*timed);
  for (absl::string_view format : {"any", "nxc", "ncx"}) {
    const auto backend = *MakeOnednnBackend();
    ASSERT_TRUE(backend->LoadTuning(AllIn(format, timed->tuning())).ok());
    const std::string implementation =
        ImplementationOf(*backend, PlanOptions());
    for (absl::string_view pass : absl::StrSplit(implementation, ' ')) {
      EXPECT_TRUE(absl::EndsWith(pass, absl::StrCat("/", format))) << pass;
    }
    EXPECT_EQ(ResultsOf(*backend), expected) << format;
  }
}

TEST(OnednnTuning, F16IsTimedOnItsOwn) {
  const auto backend = *MakeOnednnBackend();
  ASSERT_TRUE(backend->MakePlan(Backward(DataType::kF16), kTimed).ok());
  ImplementationOf(*backend, kTimed);
  EXPECT_THAT(backend->tuning(), HasSubstr("f32:ncx"));
}

TEST(OnednnTuning, RefusesLinesThatItDidNotWrite) {
  const auto backend = *MakeOnednnBackend();
  const absl::Status status = backend->LoadTuning("forward x = fast\n");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("forward x = fast"));
  EXPECT_FALSE(backend->LoadTuning("no choice").ok());
}

}  // namespace
}  // namespace convgrad
