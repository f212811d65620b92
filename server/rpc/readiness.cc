#include "server/rpc/readiness.h"

namespace convgrad {

Readiness::Readiness(Listeners* listeners) : listeners_(listeners) {
  MutexLock lock(&mutex_);
  listeners_->SetServing("liveness", true);
  listeners_->SetServing("startup", false);
  listeners_->SetServing("devices", true);
  listeners_->SetServing("proof", true);
  SetServing(false);
}

void Readiness::SetReady() {
  MutexLock lock(&mutex_);
  if (refusing_) return;
  listeners_->SetServing("startup", true);
  SetServing(true);
}

void Readiness::StartDraining() {
  MutexLock lock(&mutex_);
  refusing_ = true;
  SetServing(false);
}

void Readiness::OnDeviceLost(bool can_serve) {
  MutexLock lock(&mutex_);
  listeners_->SetServing("devices", false);
  if (can_serve) return;
  refusing_ = true;
  SetServing(false);
}

void Readiness::OnProofFailed() {
  MutexLock lock(&mutex_);
  listeners_->SetServing("proof", false);
}

void Readiness::SetServing(bool serving) {
  for (const char* service :
       {"", "readiness", "convgrad.v1.ConvGrad", "convgrad.v1.ConvGradAdmin"}) {
    listeners_->SetServing(service, serving);
  }
}

}  // namespace convgrad
