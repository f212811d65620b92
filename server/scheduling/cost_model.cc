#include "server/scheduling/cost_model.h"

namespace convgrad {
namespace {

// The rate of loopback TCP. gRPC's copies take most of the time. Measured on
// two cores.
constexpr double kWireBytesPerSecond = 1.5e9;
int64_t CrossingBytes(const Operation& operation) {
  int64_t bytes = 0;
  for (const TensorUses& uses :
       {operation.OperandUses(), operation.ResultUses()}) {
    for (const TensorUse& use : uses) {
      if (use.tensor != nullptr) bytes += *ByteSize(*use.tensor);
    }
  }
  return bytes;
}

absl::Duration SecondsFor(double amount, double speed) {
  return speed > 0 ? absl::Seconds(amount / speed) : absl::ZeroDuration();
}

}  // namespace

Prediction Predict(const Backend& backend, const Operation& operation,
                   int64_t wire_bytes, int threads_per_worker) {
  const Rates rates = backend.rates(threads_per_worker);
  const double flops = rates.flops[static_cast<size_t>(operation.dtype())];
  return {backend.name(),
          SecondsFor(static_cast<double>(wire_bytes), kWireBytesPerSecond),
          SecondsFor(static_cast<double>(CrossingBytes(operation)),
                     rates.transfer_bytes),
          rates.overhead +
              SecondsFor(static_cast<double>(operation.flops()), flops)};
}

}  // namespace convgrad
