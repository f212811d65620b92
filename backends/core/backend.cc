#include "backends/core/backend.h"

namespace convgrad {

RunTimes& RunTimes::operator+=(const RunTimes& other) {
  reorder += other.reorder;
  compute += other.compute;
  transfer += other.transfer;
  transferred_bytes += other.transferred_bytes;
  for (const auto& [step, time] : other.steps) steps[step] += time;
  reference_steps += other.reference_steps;
  return *this;
}

bool IsLost(const Backend& backend) {
  for (int device = 0; device < backend.device_count(); ++device) {
    if (!backend.IsLost(device)) return false;
  }
  return backend.device_count() > 0;
}

}  // namespace convgrad
