#include "server/rpc/readiness.h"

namespace convgrad {

Readiness::Readiness(Listeners* listeners) : listeners_(listeners) {
  MutexLock lock(&mutex_);
  listeners_->SetServing("liveness", true);
  listeners_->SetServing("startup", false);
  SetServing(false);
}

void Readiness::SetReady() {
  MutexLock lock(&mutex_);
  if (draining_) return;
  listeners_->SetServing("startup", true);
  SetServing(true);
}

void Readiness::StartDraining() {
  MutexLock lock(&mutex_);
  draining_ = true;
  SetServing(false);
}

void Readiness::SetServing(bool serving) {
  for (const char* service :
       {"", "readiness", "convgrad.v1.ConvGrad", "convgrad.v1.ConvGradAdmin"}) {
    listeners_->SetServing(service, serving);
  }
}

}  // namespace convgrad
