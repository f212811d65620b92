#include "server/proofs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "backends/proof/families.h"
#include "spdlog/spdlog.h"

namespace convgrad {

Proofs::Proofs(std::vector<RegisteredBackend>* backends)
    : proven_(
          AddProofs({[this](const FailedProof& failed) { OnFailed(failed); },
                     [](const std::string& way) {
                       spdlog::debug("no small problem proves {}", way);
                     },
                     [this](const std::string& steps) { OnReference(steps); }},
                    backends)) {}

void Proofs::OnFailed(const FailedProof& failed) {
  spdlog::error("failed proof of {} ({} on {})", failed.phrase,
                failed.implementation, failed.problem);
  MutexLock lock(&mutex_);
  has_failed_ = true;
  if (readiness_ != nullptr) readiness_->OnProofFailed();
}

void Proofs::OnReference(const std::string& steps) {
  MutexLock lock(&mutex_);
  if (is_running_) reference_steps_.insert(steps);
}

std::string Proofs::TakeReferenceSteps() {
  constexpr size_t kMostNamed = 5;
  MutexLock lock(&mutex_);
  if (reference_steps_.empty()) return "";
  std::vector<std::string> names(reference_steps_.begin(),
                                 reference_steps_.end());
  reference_steps_.clear();
  const size_t more = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - more);
  return absl::StrCat(
      "; on the library's slow reference: ", absl::StrJoin(names, ", "),
      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

void Proofs::Tell(Readiness* readiness) {
  MutexLock lock(&mutex_);
  readiness_ = readiness;
  if (has_failed_ && readiness_ != nullptr) readiness_->OnProofFailed();
}

void Proofs::Run(int threads, const std::function<bool()>& give_up) {
  {
    MutexLock lock(&mutex_);
    is_running_ = true;
  }
  for (const ProvenBackend* backend : proven_) {
    const ProofRun run = ProveFamilies(*backend, threads, give_up);
    const ProofCounts counts = backend->counts();
    spdlog::info("{}: proved {} ways in {}, {} failed{}",
                 std::string(backend->name()), counts.passed + counts.failed,
                 absl::FormatDuration(run.elapsed), counts.failed,
                 TakeReferenceSteps());
  }
  MutexLock lock(&mutex_);
  is_running_ = false;
}

}  // namespace convgrad
