// `Nvml` reads a device's state from the driver's management library.
#pragma once

#include <memory>
#include <string>

#include "backends/core/device.h"

namespace convgrad::cuda {

// Thread-safe.
class Nvml {
 public:
  // Returns null if the library is missing or doesn't work.
  static std::unique_ptr<Nvml> Load(
      const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();

  // Sets memory and utilization in `*state`, as far as the library knows them.
  void Read(const std::string& pci_bus_id, DeviceState* state) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  const std::unique_ptr<Functions> functions_;
};

}  // namespace convgrad::cuda
