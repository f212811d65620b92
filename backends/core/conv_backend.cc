#include "backends/core/conv_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

absl::Status NoConvolution(const Backend& backend, const Operation& operation) {
  return MakeError(absl::StatusCode::kUnimplemented,
                   {Reason::kUnsupported, "operation",
                    std::string(operation.name()),
                    absl::StrCat("a convolution or its gradients, all that ",
                                 backend.name(), " computes")});
}

}  // namespace

absl::Status ConvBackend::CheckSupport(const Operation& operation) const {
  const ConvOperation* convolution = AsConvolution(operation);
  return convolution == nullptr ? NoConvolution(*this, operation)
                                : CheckConvolution(*convolution);
}

absl::StatusOr<std::unique_ptr<Plan>> ConvBackend::MakePlan(
    const Operation& operation, const PlanOptions& options) const {
  const ConvOperation* convolution = AsConvolution(operation);
  if (convolution == nullptr) return NoConvolution(*this, operation);
  return PlanConvolution(*convolution, options);
}

}  // namespace convgrad
