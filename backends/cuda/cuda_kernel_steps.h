// The steps of a plan that are no convolutions: masks, copies between any
// two layouts, what follows a pass, bias sums. Each function appends to
// `steps`.
#pragma once

#include <optional>

#include "backends/cuda/cuda_step_list.h"
#include "backends/cuda/cuda_tensor_map.h"

namespace convgrad::cuda {

struct Elements {
  MappedTensor map;
  Location location;
};

// What is done to elements on their way, in this order; all but the mask in
// f32.
struct ElementEpilogue {
  std::optional<Elements> mask = std::nullopt;  // zeroes where it isn't > 0
  std::optional<Elements> bias = std::nullopt;  // maps broadcast over `to`
  std::optional<Elements> residual = std::nullopt;
  bool relu = false;
  float scale = 1;
};

// Writes `to`, rounded once, and zeros to its pad lanes unless it is masked:
// nobody reads those of a masked gradient.
void AddElementwise(const Elements& from, const Elements& to,
                    const ElementEpilogue& epilogue, StepList* steps);

// Writes `scale` * the sums over the axes along which `bias`, of the gradient's
// rank, has extent 1.
void AddBiasSum(const Elements& gradient, const TensorDescriptor& bias,
                float scale, const Location& result, StepList* steps);

}  // namespace convgrad::cuda
