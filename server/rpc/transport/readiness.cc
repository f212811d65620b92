#include "server/rpc/transport/readiness.h"

#include <utility>

#include "spdlog/spdlog.h"

namespace convgrad {

Readiness::Readiness(Listeners* listeners) : listeners_(listeners) {
  MutexLock lock(&mutex_);
  listeners_->SetServing("liveness", true);
  listeners_->SetServing("startup", false);
  listeners_->SetServing("devices", true);
  listeners_->SetServing("proof", true);
  Tell();
}

void Readiness::SetReady() {
  MutexLock lock(&mutex_);
  if (refusing_) return;
  ready_ = true;
  listeners_->SetServing("startup", true);
  Tell();
}

void Readiness::StartDraining() {
  MutexLock lock(&mutex_);
  refusing_ = true;
  Tell();
}

void Readiness::Listen() {
  const Hearing now = listeners_->hearing();
  MutexLock lock(&mutex_);
  if (std::exchange(hearing_, now) == now) return;
  if (now == Hearing::kGood) {
    spdlog::info("connections are accepted again");
  } else {
    spdlog::error("no connection is accepted");
  }
  listeners_->SetServing("liveness", now != Hearing::kLost);
  Tell();
}

void Readiness::OnDeviceLost(bool can_serve) {
  MutexLock lock(&mutex_);
  listeners_->SetServing("devices", false);
  if (can_serve) return;
  refusing_ = true;
  Tell();
}

void Readiness::OnProofFailed() {
  MutexLock lock(&mutex_);
  listeners_->SetServing("proof", false);
}

void Readiness::Tell() {
  const bool serving = ready_ && !refusing_ && hearing_ == Hearing::kGood;
  for (const char* service :
       {"", "readiness", "convgrad.v1.ConvGrad", "convgrad.v1.ConvGradSessions",
        "convgrad.v1.ConvGradNetworks", "convgrad.v1.ConvGradAdmin"}) {
    listeners_->SetServing(service, serving);
  }
}

}  // namespace convgrad
