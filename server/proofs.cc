#include "server/proofs.h"

#include <string>

#include "absl/time/time.h"
#include "backends/proof/families.h"
#include "spdlog/spdlog.h"

namespace convgrad {

Proofs::Proofs(std::vector<RegisteredBackend>* backends)
    : proven_(
          AddProofs({[this](const FailedProof& failed) { OnFailed(failed); },
                     [](const std::string& way) {
                       spdlog::debug("no small problem proves {}", way);
                     }},
                    backends)) {}

void Proofs::OnFailed(const FailedProof& failed) {
  spdlog::error("failed proof of {} ({} on {})", failed.phrase,
                failed.implementation, failed.problem);
  MutexLock lock(&mutex_);
  has_failed_ = true;
  if (readiness_ != nullptr) readiness_->OnProofFailed();
}

void Proofs::Tell(Readiness* readiness) {
  MutexLock lock(&mutex_);
  readiness_ = readiness;
  if (has_failed_ && readiness_ != nullptr) readiness_->OnProofFailed();
}

void Proofs::Run(int threads, const std::function<bool()>& give_up) const {
  for (const ProvenBackend* backend : proven_) {
    const ProofRun run = ProveFamilies(*backend, threads, give_up);
    const ProofCounts counts = backend->counts();
    spdlog::info("{}: proved {} ways in {}, {} failed",
                 std::string(backend->name()), counts.passed + counts.failed,
                 absl::FormatDuration(run.elapsed), counts.failed);
  }
}

std::vector<ProofGauges> Proofs::gauges() const {
  std::vector<ProofGauges> gauges;
  for (const ProvenBackend* backend : proven_) {
    const ProofCounts counts = backend->counts();
    gauges.push_back({std::string(backend->name()), counts.passed,
                      counts.failed, counts.unmet, counts.families});
  }
  return gauges;
}

}  // namespace convgrad
