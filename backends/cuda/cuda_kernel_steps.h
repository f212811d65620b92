// Appends the steps of a plan that aren't convolutions: masks, copies between
// any two layouts, the work after a pass, and bias sums.
#pragma once

#include <optional>

#include "backends/cuda/cuda_step_list.h"
#include "backends/cuda/cuda_tensor_map.h"

namespace convgrad::cuda {

struct Elements {
  MappedTensor map;
  Location location;
};

// Operations on elements during a copy, in the order of the members; all but
// the mask in f32.
struct ElementEpilogue {
  // Writes 0 where the mask isn't > 0.
  std::optional<Elements> mask = std::nullopt;
  std::optional<Elements> bias = std::nullopt;  // maps broadcast over `to`
  std::optional<Elements> residual = std::nullopt;
  bool relu = false;
  float scale = 1;
};

// Appends a step that writes `to`, rounded once, and zeros in its pad lanes. A
// masked copy doesn't zero them, because nothing reads a masked gradient's pad
// lanes.
void AddElementwise(const Elements& from, const Elements& to,
                    const ElementEpilogue& epilogue, StepList* steps);

// Appends a step that writes `scale` * the sums over the axes along which
// `bias` has extent 1. `bias` has the gradient's rank.
void AddBiasSum(const Elements& gradient, const TensorDescriptor& bias,
                float scale, const Location& result, StepList* steps);

}  // namespace convgrad::cuda
