// This library replaces NVML. It has one device, 0000:01:00.0, without a
// utilization.
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};

// NOLINTBEGIN(readability-identifier-naming): names of NVML's
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  static int the_device;
  *device = &the_device;
  return std::strcmp(id, "0000:01:00.0") == 0 ? 0 : 6;  // NOT_FOUND
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {1000, 600, 400};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, void*) {
  return 3;  // NOT_SUPPORTED
}
// NOLINTEND(readability-identifier-naming)
}
