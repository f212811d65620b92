#include "backends/proof/proven_backend.h"

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/proof/exact_run.h"
#include "backends/proof/families.h"
#include "backends/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/backends/proof/breaking_backend.h"

namespace convgrad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Direction kForward = Direction::kForward;
constexpr Direction kBackward = Direction::kBackward;

ConvOperation Whole(absl::string_view problem, Direction direction,
                    DataType dtype, Layout layout = Layout::kNCX) {
  return WholeOperation(*Parse(problem), direction, dtype, layout);
}

class ProvenBackendTest : public testing::Test {
 protected:
  void Make(std::vector<Break> breaks) {
    backend_.emplace(
        std::make_unique<BreakingBackend>(*MakeOnednnBackend(),
                                          std::move(breaks)),
        *MakeReferenceBackend(),
        ProofListener{
            [this](const FailedProof& failed) {
              told_.push_back(failed.phrase);
            },
            [this](const std::string& way) { unmet_.push_back(way); },
            [this](const std::string& steps) { reference_.push_back(steps); }});
  }

  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(
      const ConvOperation& operation) const {
    return backend_->MakePlan(operation, {});
  }

  // Returns the results that a plan of `operation` computes wrongly.
  std::vector<Result> WrongOf(const ConvOperation& operation) const {
    const auto plan = MakePlan(operation);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return {};
    return *WrongResults(operation, **plan, **MakeReferenceBackend());
  }

  std::vector<std::string> failed() const {
    return backend_->capabilities().failed_proofs;
  }

  // Expects that `operation` is computed correctly by way of f32, and that
  // `family` reports it.
  void ExpectByF32(const ConvOperation& operation, const std::string& family) {
    const std::string phrase = family + ": by way of f32";
    EXPECT_THAT(WrongOf(operation), IsEmpty());
    EXPECT_THAT(failed(), ElementsAre(phrase));
    EXPECT_THAT(told_, ElementsAre(phrase));
    EXPECT_TRUE(backend_->CheckSupport(operation).ok());
    EXPECT_EQ(backend_->counts().failed, 1);
    EXPECT_EQ(backend_->counts().passed, 1);
    // The second call finds the way already proved.
    EXPECT_THAT(WrongOf(operation), IsEmpty());
    EXPECT_EQ(backend_->counts().failed, 1);
    EXPECT_EQ(told_.size(), 1);
  }

  // Expects that `operation` is refused, also before it is planned.
  void ExpectRefused(const ConvOperation& operation,
                     const std::string& family) {
    EXPECT_TRUE(backend_->CheckSupport(operation).ok());
    for (const absl::Status& refusal :
         {MakePlan(operation).status(), backend_->CheckSupport(operation),
          MakePlan(operation).status()}) {
      EXPECT_EQ(refusal.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(DetailOf(refusal)->reason, Reason::kBackendUnavailable);
      EXPECT_TRUE(absl::StrContains(refusal.message(), family)) << refusal;
      EXPECT_TRUE(absl::StrContains(refusal.message(), "proof")) << refusal;
    }
    EXPECT_THAT(failed(), ElementsAre(family + ": refused"));
    EXPECT_THAT(told_, ElementsAre(family + ": refused"));
  }

  std::optional<ProvenBackend> backend_;
  std::vector<std::string> told_;
  std::vector<std::string> unmet_;
  std::vector<std::string> reference_;
};

TEST_F(ProvenBackendTest, ComputesASwappedTapByF32OrRefusesIt) {
  const ConvOperation operation =
      Whole("conv2d_n2_c16_o16_i6_k3_p1", kForward, DataType::kBF16);
  Make({{Breakage::kSwappedTap, DataType::kBF16}});
  ExpectByF32(operation, "bf16 output in NCX/OIX");
  told_.clear();
  Make({{Breakage::kSwappedTap, DataType::kBF16, /*in_f32_too=*/true}});
  ExpectRefused(operation, "bf16 output in NCX/OIX");
}

TEST_F(ProvenBackendTest, ComputesADroppedResidualByF32OrRefusesIt) {
  const ConvOperation operation =
      Whole("conv2d_n2_c16_o16_i6_k3_p1_res", kForward, DataType::kBF16);
  Make({{Breakage::kDroppedResidual, DataType::kBF16}});
  ExpectByF32(operation, "bf16 output with residual in NCX/OIX");
  told_.clear();
  Make({{Breakage::kDroppedResidual, DataType::kBF16, /*in_f32_too=*/true}});
  ExpectRefused(operation, "bf16 output with residual in NCX/OIX");
  // Other operations aren't affected.
  EXPECT_THAT(
      WrongOf(Whole("conv2d_n2_c16_o16_i6_k3_p1", kForward, DataType::kBF16)),
      IsEmpty());
}

TEST_F(ProvenBackendTest, ComputesF16ReadAsBF16ByF32OrRefusesIt) {
  const ConvOperation operation =
      Whole("conv2d_n2_c16_o16_i6_k3_p1", kForward, DataType::kF16);
  Make({{Breakage::kF16AsBF16, DataType::kF16}});
  ExpectByF32(operation, "f16 output in NCX/OIX");
  told_.clear();
  Make({{Breakage::kF16AsBF16, DataType::kF16, /*in_f32_too=*/true}});
  ExpectRefused(operation, "f16 output in NCX/OIX");
}

TEST_F(ProvenBackendTest, ComputesAWrongBiasSumByF32OrRefusesIt) {
  const ConvOperation operation =
      Whole("conv2d_n2_c16_o16_i6_k3_p1_b", kBackward, DataType::kBF16);
  Make({{Breakage::kWrongBiasSum, DataType::kBF16}});
  ExpectByF32(operation, "bf16 grad_bias in NCX");
  told_.clear();
  Make({{Breakage::kWrongBiasSum, DataType::kBF16, /*in_f32_too=*/true}});
  ExpectRefused(operation, "bf16 grad_bias in NCX");
  // The other gradients of the same pass are correct.
  ConvOperation others = operation;
  others.problem.bias.reset();
  others.results.pop_back();
  EXPECT_THAT(WrongOf(others), IsEmpty());
}

TEST_F(ProvenBackendTest, ComputesALayoutOffByOneLaneByF32OrRefusesIt) {
  const ConvOperation operation = Whole("conv2d_n2_c16_o16_i6_k3_p1", kForward,
                                        DataType::kBF16, Layout::kNXC);
  Make({{Breakage::kShiftedLane, DataType::kBF16}});
  ExpectByF32(operation, "bf16 output in NXC/OIX");
  told_.clear();
  Make({{Breakage::kShiftedLane, DataType::kBF16, /*in_f32_too=*/true}});
  ExpectRefused(operation, "bf16 output in NXC/OIX");
}

TEST_F(ProvenBackendTest, RefusesF32WhichHasNoOtherWay) {
  Make({{Breakage::kSwappedTap, DataType::kF32}});
  ExpectRefused(Whole("conv2d_n2_c16_o16_i6_k3_p1", kForward, DataType::kF32),
                "f32 output in NCX/OIX");
}

TEST_F(ProvenBackendTest, ProvesAnImplementationWhenItIsFirstTaken) {
  Make({{Breakage::kSwappedTap, DataType::kF32, false,
         [](const ConvOperation& operation) {
           return operation.problem.axes[0].kernel == 5;
         }}});
  EXPECT_TRUE(
      MakePlan(Whole("conv2d_n16_c64_o64_i28_k3_p1", kForward, DataType::kF32))
          .ok());
  EXPECT_THAT(failed(), IsEmpty());
  EXPECT_TRUE(absl::IsFailedPrecondition(
      MakePlan(Whole("conv2d_n16_c64_o64_i28_k5_p2", kForward, DataType::kF32))
          .status()));
  EXPECT_THAT(failed(), ElementsAre("f32 output in NCX/OIX: refused"));
}

TEST_F(ProvenBackendTest, TriesLargerProblemsUntilOneTakesTheImplementation) {
  Make({{Breakage::kSwappedTap, DataType::kF32, false,
         [](const ConvOperation& operation) {
           return operation.problem.in_channels == 128;
         }}});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      MakePlan(Whole("conv2d_n16_c128_o64_i28_k3_p1", kForward, DataType::kF32))
          .status()));
  Make({{Breakage::kSwappedTap, DataType::kF32, false,
         [](const ConvOperation& operation) {
           return operation.problem.axes[0].in == 20;
         }}});
  EXPECT_TRUE(absl::IsFailedPrecondition(
      MakePlan(Whole("conv2d_n16_c128_o64_i20_k3_p1", kForward, DataType::kF32))
          .status()));
  EXPECT_THAT(unmet_, IsEmpty());
}

TEST_F(ProvenBackendTest, CountsWhatNoSmallProblemTakesAndComputesIt) {
  Make({{Breakage::kDroppedResidual, DataType::kF32, false,
         [](const ConvOperation& operation) {
           return operation.problem.batch == 16;
         }}});
  EXPECT_TRUE(
      MakePlan(Whole("conv2d_n16_c64_o64_i28_k3_p1", kForward, DataType::kF32))
          .ok());
  EXPECT_EQ(backend_->counts().unmet, 1);
  EXPECT_EQ(unmet_.size(), 1);
  EXPECT_THAT(failed(), IsEmpty());
}

TEST_F(ProvenBackendTest, NamesStepsOnTheLibrarysReferenceOnce) {
  Make({{Breakage::kReferenceSteps, DataType::kBF16}});
  const auto slow = Whole("conv2d_n1_c3_o5_i4_k3", kForward, DataType::kBF16);
  EXPECT_THAT(WrongOf(slow), IsEmpty());
  EXPECT_THAT(WrongOf(slow), IsEmpty());
  EXPECT_THAT(WrongOf(Whole("conv2d_n1_c3_o5_i4_k3", kForward, DataType::kF32)),
              IsEmpty());
  EXPECT_THAT(reference_,
              ElementsAre(absl::StrCat("step by ref:any in ", ToString(slow))));
  EXPECT_THAT(failed(), IsEmpty());
}

TEST_F(ProvenBackendTest, ProvesAWayOnceForAllThreads) {
  Make({{Breakage::kSwappedTap, DataType::kF32, true}});
  std::vector<std::thread> threads;
  std::vector<absl::Status> made(4);
  for (absl::Status& status : made) {
    threads.emplace_back([&] {
      status = MakePlan(Whole("conv2d_n2_c16_o16_i6_k3_p1_b", kBackward,
                              DataType::kF32))
                   .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : made) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
  EXPECT_EQ(backend_->counts().failed, 1);
  EXPECT_THAT(told_, ElementsAre("f32 grad_input in OIX/NCX: refused"));
}

TEST_F(ProvenBackendTest, FamiliesShowEachBreakageWhereItIs) {
  Make({{Breakage::kDroppedResidual, DataType::kBF16},
        {Breakage::kWrongBiasSum, DataType::kF32, true}});
  const ProofRun run = ProveFamilies(*backend_, 1, [] { return false; });
  EXPECT_EQ(run.families.size(), Families().size());
  for (const FamilyProof& family : run.families) {
    if (family.dtype == DataType::kF16) continue;
    const bool is_bf16 = family.dtype == DataType::kBF16;
    const bool has_residual =
        absl::StrContains(family.name, "forward with bias, residual");
    const bool is_backward = absl::StrContains(family.name, "backward");
    EXPECT_EQ(family.remedy, is_bf16 && has_residual   ? Remedy::kByF32
                             : !is_bf16 && is_backward ? Remedy::kRefused
                                                       : Remedy::kNone)
        << family.name << " " << NameOf(family.dtype);
  }
  EXPECT_EQ(backend_->counts().families, failed().size());
}

TEST_F(ProvenBackendTest, FamiliesPassOnThisMachine) {
  Make({});
  const ProofRun run = ProveFamilies(*backend_, 2, [] { return false; });
  for (const FamilyProof& family : run.families) {
    EXPECT_EQ(family.remedy, Remedy::kNone)
        << family.name << " " << NameOf(family.dtype);
  }
  EXPECT_THAT(failed(), IsEmpty());
  EXPECT_GT(backend_->counts().passed, 100);
  EXPECT_EQ(backend_->counts().unmet, 0);
}

TEST_F(ProvenBackendTest, FamiliesCanBeGivenUp) {
  Make({});
  int asked = 0;
  const ProofRun run = ProveFamilies(*backend_, 1, [&] { return ++asked > 3; });
  EXPECT_EQ(run.families.size(), 3);
}

TEST(Families, AreValid) {
  for (const Family& family : Families()) {
    EXPECT_TRUE(Validate(family.operation).ok())
        << family.name << ": " << Validate(family.operation);
  }
}

}  // namespace
}  // namespace convgrad
