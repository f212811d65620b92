#include "backends/cuda/device/cuda_types.h"

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad::cuda {

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorMisalignedAddress:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status StatusOf(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  Reason reason = Reason::kInternal;
  if (error == cudaErrorMemoryAllocation) {
    code = absl::StatusCode::kResourceExhausted;
    reason = Reason::kLimitExceeded;
  } else if (IsSticky(error)) {
    code = absl::StatusCode::kUnavailable;
    reason = Reason::kBackendUnavailable;
  }
  return MakeError(code, {reason, absl::StrCat("CUDA ", what),
                          cudaGetErrorName(error), "success"});
}

}  // namespace convgrad::cuda
