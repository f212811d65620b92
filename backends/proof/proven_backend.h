// `ProvenBackend` compares each way of computing with the reference on this
// machine before it uses the way. README.md beside this file says why and how.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "backends/core/mutex.h"
#include "backends/core/program/conv_backend.h"

namespace convgrad {

// A wrong result, and the action taken.
struct FailedProof {
  std::string phrase;  // as in BackendCapabilities::failed_proofs
  std::string implementation;
  std::string problem;  // that gave the wrong result
};

// Called on the threads that make plans; thread-safe.
struct ProofListener {
  // Called once for each phrase.
  std::function<void(const FailedProof&)> on_failed = [](const auto&) {};
  // Called once for each way that no small problem takes, so that it is used
  // without a proof.
  std::function<void(const std::string& way)> on_unmet = [](const auto&) {};
  // Called once for each proof of a plan with Plan::reference_steps: one of
  // them and what was proven, e.g. "conv forward by ref:any in f32 network
  // conv".
  std::function<void(const std::string& steps)> on_reference = [](const auto&) {
  };
};

// Numbers of ways by the outcome of their proof, since the start.
struct ProofCounts {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t unmet = 0;
  int64_t families = 0;  // length of BackendCapabilities::failed_proofs
};

// The action after an operation's proof.
enum class Remedy { kNone, kByF32, kRefused };

// Wraps a backend and has its name. MakePlan proves each way (see way.h) at its
// first use, on the calling thread. If a way with 16-bit operands fails, it is
// computed in f32 if f32 passes. Otherwise the operation is refused, and
// CheckSupport refuses its family.
//
// Thread-safe.
class ProvenBackend final : public ConvBackend {
 public:
  // Requires: `wrapped` computes on the calling thread's cores; the reference
  // supports every operation that `wrapped` supports.
  ProvenBackend(std::unique_ptr<Backend> wrapped,
                std::shared_ptr<const Backend> reference,
                ProofListener listener);

  // Does the same as MakePlan, and sets `*remedy` to the action taken.
  absl::StatusOr<std::unique_ptr<Plan>> MakeProvenPlan(
      const ConvOperation& operation, const PlanOptions& options,
      Remedy* remedy) const;

  // Proves a small program of one operator on this thread. If the result is
  // wrong, the backend refuses programs with this operator and compute dtype
  // from then on. Errors: as MakePlan; those of the reference.
  absl::StatusOr<Remedy> ProveProgram(Operator op,
                                      const ProgramOperation& operation,
                                      const PlanOptions& options) const;

  ProofCounts counts() const;

  absl::string_view name() const override { return wrapped_->name(); }
  BackendCapabilities capabilities() const override;
  double nominal_macs_per_second(int threads) const override {
    return wrapped_->nominal_macs_per_second(threads);
  }
  int64_t planning_bytes(const Operation& operation) const override {
    return wrapped_->planning_bytes(operation);
  }
  absl::Status CheckConvolution(const ConvOperation& operation) const override;
  absl::StatusOr<std::unique_ptr<Plan>> PlanConvolution(
      const ConvOperation& operation,
      const PlanOptions& options) const override;
  // Only ProveProgram proves programs, operator by operator.
  absl::Status CheckProgram(const ProgramOperation& operation) const override;
  absl::StatusOr<std::unique_ptr<Plan>> PlanProgram(
      const ProgramOperation& operation,
      const PlanOptions& options) const override;
  void ParallelFor(
      int threads, int64_t count,
      absl::FunctionRef<void(int64_t begin, int64_t end)> body) const override {
    wrapped_->ParallelFor(threads, count, body);
  }
  Rates rates(int threads) const override { return wrapped_->rates(threads); }

 private:
  // The outcome of proving a way: unmet if no small problem takes the way.
  struct Proof {
    std::string implementation;
    std::string problem;
    std::vector<Result> wrong;
    bool passed() const { return !problem.empty() && wrong.empty(); }
  };

  // Returns the proof of the way that `plan` takes; makes it if there is none.
  absl::StatusOr<Proof> ProofOf(const ConvOperation& operation,
                                const PlanOptions& options,
                                const Plan& plan) const;
  absl::StatusOr<Proof> Prove(const ConvOperation& operation,
                              PlanOptions options, const Plan& plan) const;
  absl::StatusOr<Proof> ProveOn(const ConvOperation& operation,
                                const Plan& plan) const;
  // Tells the listener if the plan has reference steps.
  void NoteReference(const Plan& plan, absl::string_view proven) const;
  void Note(const ConvOperation& operation, const Proof& proof,
            Remedy remedy) const;
  void NoteFamily(const std::string& family, Remedy remedy,
                  absl::string_view implementation,
                  absl::string_view problem) const;
  absl::Status Refusal(absl::string_view family) const;

  const std::unique_ptr<Backend> wrapped_;
  const std::shared_ptr<const Backend> reference_;
  const ProofListener listener_;
  mutable Mutex mutex_;
  mutable absl::flat_hash_map<std::string, Proof> proofs_
      ABSL_GUARDED_BY(mutex_);
  mutable ProofCounts counts_ ABSL_GUARDED_BY(mutex_);
  // The action for each family: kByF32 or kRefused.
  mutable std::map<std::string, Remedy> failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace convgrad
