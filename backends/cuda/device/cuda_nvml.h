// What the driver's management library tells of a device, where it is there.
#pragma once

#include <memory>
#include <string>

#include "backends/core/device.h"

namespace convgrad::cuda {

// Thread-safe.
class Nvml {
 public:
  // Returns null where the library isn't, or doesn't work.
  static std::unique_ptr<Nvml> Load(
      const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();

  // Fills in memory and utilization, as far as they are known.
  void Read(const std::string& pci_bus_id, DeviceState* state) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  const std::unique_ptr<Functions> functions_;
};

}  // namespace convgrad::cuda
