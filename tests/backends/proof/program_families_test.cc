#include "backends/proof/program_families.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "backends/onednn/onednn_backend.h"
#include "backends/proof/exact_run.h"
#include "backends/proof/families.h"
#include "backends/proof/proven_backend.h"
#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"

namespace convgrad {
namespace {

// Computes as the plan that it wraps, except the last element of one result.
class WrongPlan final : public Plan {
 public:
  WrongPlan(const ProgramOperation& operation, size_t wrong,
            std::unique_ptr<Plan> real)
      : tensor_(*operation.ResultUses()[wrong].tensor),
        wrong_(wrong),
        real_(std::move(real)) {}

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    ASSIGN_OR_RETURN(const RunTimes times, real_->Run(buffers));
    std::vector<double> values = LoadLogical(tensor_, buffers.results[wrong_]);
    double most = 0.25;
    for (double value : values) most = std::max(most, std::fabs(value));
    // A number of runs (num_batches_tracked) is an integer.
    values.back() += tensor_.dtype == DataType::kI64 ? 1 : most / 4;
    StoreLogical(tensor_, values, buffers.results[wrong_]);
    return times;
  }
  int64_t scratch_bytes() const override { return real_->scratch_bytes(); }
  int64_t resident_bytes() const override { return real_->resident_bytes(); }
  absl::string_view implementation() const override { return "wrong"; }

 private:
  const TensorDescriptor tensor_;
  const size_t wrong_;
  const std::unique_ptr<Plan> real_;
};

// `WrongBackend` is oneDNN with a wrong result in training runs of one
// operator.
class WrongBackend final : public ConvBackend {
 public:
  explicit WrongBackend(Operator op) : op_(op), real_(*MakeOnednnBackend()) {}

  absl::string_view name() const override { return real_->name(); }
  BackendCapabilities capabilities() const override {
    return real_->capabilities();
  }
  absl::Status CheckConvolution(const ConvOperation& operation) const override {
    return real_->CheckSupport(operation);
  }
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override {
    return real_->MakePlan(operation, options);
  }
  absl::Status CheckProgram(const ProgramOperation& operation) const override {
    return real_->CheckSupport(operation);
  }
  absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation,
      const PlanOptions& options) const override {
    ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                     real_->MakePlan(operation, options));
    if (operation.program().steps[0].op != op_) return plan;
    return std::make_unique<WrongPlan>(operation, 0, std::move(plan));
  }

 private:
  const Operator op_;
  const std::unique_ptr<Backend> real_;
};

TEST(ProgramFamilies, HaveEveryOperatorInBothDtypes) {
  std::set<std::pair<Operator, DataType>> found;
  for (const ProgramFamily& family : ProgramFamilies()) {
    const auto& steps = family.operation->program().steps;
    EXPECT_TRUE(std::any_of(
        steps.begin(), steps.end(),
        [&](const ProgramStep& step) { return step.op == family.op; }))
        << family.name;
    found.insert({family.op, family.operation->dtype()});
  }
  for (const OperatorSpec& spec : Operators()) {
    for (DataType dtype : {DataType::kF32, DataType::kBF16}) {
      EXPECT_EQ(found.count({spec.op, dtype}), 1) << spec.name;
    }
  }
}

TEST(ProgramFamilies, AreComputedRightByOnednn) {
  const ProvenBackend backend(*MakeOnednnBackend(), *MakeReferenceBackend(),
                              {});
  for (const ProgramFamily& family : ProgramFamilies()) {
    const auto remedy = backend.ProveProgram(family.op, *family.operation, {});
    ASSERT_TRUE(remedy.ok()) << family.name << remedy.status();
    EXPECT_EQ(*remedy, Remedy::kNone) << family.operation->text();
  }
  EXPECT_EQ(backend.counts().failed, 0);
}

TEST(ProgramFamilies, ShowAWrongElementOfAnyResult) {
  const auto reference = *MakeReferenceBackend();
  for (const ProgramFamily& family : ProgramFamilies()) {
    const ProgramOperation& operation = *family.operation;
    for (size_t i = 0; i < operation.ResultUses().size(); ++i) {
      const WrongPlan plan(operation, i, *reference->MakePlan(operation, {}));
      const auto agrees = AgreesWithReference(operation, plan, *reference);
      ASSERT_TRUE(agrees.ok()) << agrees.status();
      EXPECT_FALSE(*agrees) << family.name << " result " << i;
    }
  }
}

TEST(ProgramFamilies, ThatFailAreRefusedByOperatorAndDtype) {
  std::vector<std::string> told;
  const ProvenBackend backend(std::make_unique<WrongBackend>(Operator::kSilu),
                              *MakeReferenceBackend(),
                              ProofListener{[&](const FailedProof& failed) {
                                told.push_back(failed.phrase);
                              }});
  const ProofRun run = ProveFamilies(backend, 1, [] { return false; });
  for (const FamilyProof& family : run.families) {
    EXPECT_EQ(family.remedy == Remedy::kRefused, family.name == "network silu")
        << family.name;
  }
  EXPECT_EQ(told, (std::vector<std::string>{"f32 silu of networks: refused",
                                            "bf16 silu of networks: refused"}));
  EXPECT_EQ(backend.capabilities().failed_proofs.size(), 2);
  for (const ProgramFamily& family : ProgramFamilies()) {
    const bool is_refused = family.op == Operator::kSilu;
    const absl::Status support = backend.CheckSupport(*family.operation);
    EXPECT_EQ(support.ok(), !is_refused) << support;
    if (!is_refused) continue;
    EXPECT_EQ(support.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(DetailOf(support)->field, "options.backend");
    EXPECT_EQ(backend.MakePlan(*family.operation, {}).status(), support);
  }
}

}  // namespace
}  // namespace convgrad
