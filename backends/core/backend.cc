#include "backends/core/backend.h"

namespace convgrad {

bool IsLost(const Backend& backend) {
  for (int device = 0; device < backend.device_count(); ++device) {
    if (!backend.IsLost(device)) return false;
  }
  return backend.device_count() > 0;
}

}  // namespace convgrad
