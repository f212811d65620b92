#include "backends/proof/proven_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "backends/proof/exact_run.h"
#include "backends/proof/program_families.h"
#include "backends/proof/small_problems.h"
#include "backends/proof/way.h"

namespace convgrad {
namespace {

std::string PhraseOf(absl::string_view family, Remedy remedy) {
  return absl::StrCat(
      family, remedy == Remedy::kByF32 ? ": by way of f32" : ": refused");
}

}  // namespace

ProvenBackend::ProvenBackend(std::unique_ptr<Backend> wrapped,
                             std::shared_ptr<const Backend> reference,
                             ProofListener listener)
    : wrapped_(std::move(wrapped)),
      reference_(std::move(reference)),
      listener_(std::move(listener)) {}

ProofCounts ProvenBackend::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

BackendCapabilities ProvenBackend::capabilities() const {
  BackendCapabilities capabilities = wrapped_->capabilities();
  MutexLock lock(&mutex_);
  for (const auto& [family, remedy] : failed_) {
    capabilities.failed_proofs.push_back(PhraseOf(family, remedy));
  }
  return capabilities;
}

absl::Status ProvenBackend::Refusal(absl::string_view family) const {
  return FailedPrecondition(
      Reason::kBackendUnavailable, "options.backend",
      absl::StrCat(name(),
                   ", which failed this server's own proof on this "
                   "machine for ",
                   family),
      "another backend or another machine");
}

absl::Status ProvenBackend::CheckConvolution(
    const ConvOperation& operation) const {
  RETURN_IF_ERROR(wrapped_->CheckSupport(operation));
  MutexLock lock(&mutex_);
  if (failed_.empty()) return absl::OkStatus();
  for (const ResultRequest& request : operation.results) {
    const auto found = failed_.find(FamilyOf(operation, request.which));
    if (found != failed_.end() && found->second == Remedy::kRefused) {
      return Refusal(found->first);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Plan>> ProvenBackend::PlanConvolution(
    const ConvOperation& operation, const PlanOptions& options) const {
  Remedy remedy;
  return MakeProvenPlan(operation, options, &remedy);
}

absl::StatusOr<std::unique_ptr<Plan>> ProvenBackend::MakeProvenPlan(
    const ConvOperation& operation, const PlanOptions& options,
    Remedy* remedy) const {
  *remedy = Remedy::kRefused;
  RETURN_IF_ERROR(CheckConvolution(operation));
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan,
                   wrapped_->MakePlan(operation, options));
  ASSIGN_OR_RETURN(Proof proof, ProofOf(operation, options, *plan));
  if (proof.wrong.empty()) {
    *remedy = Remedy::kNone;
    return plan;
  }
  if (operation.dtype() != DataType::kF32) {
    PlanOptions in_f32 = options;
    in_f32.compute_in_f32 = true;
    ASSIGN_OR_RETURN(plan, wrapped_->MakePlan(operation, in_f32));
    ASSIGN_OR_RETURN(Proof second, ProofOf(operation, in_f32, *plan));
    if (second.passed()) {
      *remedy = Remedy::kByF32;
      Note(operation, proof, *remedy);
      return plan;
    }
    if (!second.wrong.empty()) proof = std::move(second);
  }
  Note(operation, proof, *remedy);
  return Refusal(FamilyOf(operation, proof.wrong[0]));
}

absl::StatusOr<ProvenBackend::Proof> ProvenBackend::ProofOf(
    const ConvOperation& operation, const PlanOptions& options,
    const Plan& plan) const {
  const std::string way = absl::StrCat(options.compute_in_f32 ? "f32 by " : "",
                                       WayOf(operation, plan.implementation()));
  {
    MutexLock lock(&mutex_);
    const auto known = proofs_.find(way);
    if (known != proofs_.end()) return known->second;
  }
  ASSIGN_OR_RETURN(Proof proof, Prove(operation, options, plan));
  const bool is_unmet = proof.problem.empty();
  {
    MutexLock lock(&mutex_);
    const auto [position, is_new] = proofs_.emplace(way, proof);
    // Another thread may have proven it meanwhile.
    if (!is_new) return position->second;
    ++(is_unmet              ? counts_.unmet
       : proof.wrong.empty() ? counts_.passed
                             : counts_.failed);
  }
  if (is_unmet) listener_.on_unmet(way);
  NoteReference(plan, ToString(operation));
  return proof;
}

absl::StatusOr<ProvenBackend::Proof> ProvenBackend::Prove(
    const ConvOperation& operation, PlanOptions options,
    const Plan& plan) const {
  if (IsCheap(operation)) return ProveOn(operation, plan);
  options.like = plan.implementation();
  // Takes the same code as `plan`, but that only one of the two is cut.
  std::unique_ptr<Plan> similar;
  ConvOperation similar_operation;
  for (ConvOperation& small : SmallProblems(operation)) {
    auto made = wrapped_->MakePlan(small, options);
    if (!made.ok()) continue;
    if ((*made)->implementation() == plan.implementation()) {
      return ProveOn(small, **made);
    }
    if (similar == nullptr && PiecesOf((*made)->implementation()) ==
                                  PiecesOf(plan.implementation())) {
      similar = *std::move(made);
      similar_operation = std::move(small);
    }
  }
  if (similar != nullptr) return ProveOn(similar_operation, *similar);
  return Proof();
}

absl::StatusOr<ProvenBackend::Proof> ProvenBackend::ProveOn(
    const ConvOperation& operation, const Plan& plan) const {
  Proof proof;
  ASSIGN_OR_RETURN(proof.wrong, WrongResults(operation, plan, *reference_));
  proof.implementation = std::string(plan.implementation());
  proof.problem = ToString(operation);
  return proof;
}

void ProvenBackend::NoteReference(const Plan& plan,
                                  absl::string_view proven) const {
  const std::vector<std::string> steps = plan.reference_steps();
  if (steps.empty()) return;
  listener_.on_reference(absl::StrCat(steps[0], " in ", proven));
}

void ProvenBackend::Note(const ConvOperation& operation, const Proof& proof,
                         Remedy remedy) const {
  for (Result which : proof.wrong) {
    NoteFamily(FamilyOf(operation, which), remedy, proof.implementation,
               proof.problem);
  }
}

void ProvenBackend::NoteFamily(const std::string& family, Remedy remedy,
                               absl::string_view implementation,
                               absl::string_view problem) const {
  {
    MutexLock lock(&mutex_);
    Remedy& noted = failed_[family];
    // A refused family stays refused.
    if (noted == Remedy::kRefused || noted == remedy) return;
    noted = remedy;
    counts_.families = static_cast<int64_t>(failed_.size());
  }
  listener_.on_failed({PhraseOf(family, remedy), std::string(implementation),
                       std::string(problem)});
}

absl::StatusOr<Remedy> ProvenBackend::ProveProgram(
    Operator op, const ProgramOperation& operation,
    const PlanOptions& options) const {
  RETURN_IF_ERROR(wrapped_->CheckSupport(operation));
  ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan,
                   wrapped_->MakePlan(operation, options));
  ASSIGN_OR_RETURN(const bool is_right,
                   AgreesWithReference(operation, *plan, *reference_));
  {
    MutexLock lock(&mutex_);
    ++(is_right ? counts_.passed : counts_.failed);
  }
  NoteReference(*plan, FamilyOf(op, operation.dtype()));
  if (is_right) return Remedy::kNone;
  NoteFamily(FamilyOf(op, operation.dtype()), Remedy::kRefused,
             plan->implementation(), operation.text());
  return Remedy::kRefused;
}

absl::Status ProvenBackend::CheckProgram(
    const ProgramOperation& operation) const {
  RETURN_IF_ERROR(wrapped_->CheckSupport(operation));
  MutexLock lock(&mutex_);
  if (failed_.empty()) return absl::OkStatus();
  for (const ProgramStep& step : operation.program().steps) {
    const auto found = failed_.find(FamilyOf(step.op, operation.dtype()));
    if (found != failed_.end()) return Refusal(found->first);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Plan>> ProvenBackend::PlanProgram(
    const ProgramOperation& operation, const PlanOptions& options) const {
  RETURN_IF_ERROR(CheckProgram(operation));
  return wrapped_->MakePlan(operation, options);
}

}  // namespace convgrad
