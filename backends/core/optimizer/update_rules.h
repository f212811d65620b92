// These functions compute an optimizer's step on a range of one parameter's
// elements, each element in f32.
//
// Formulas: torch.optim.SGD, Adam, AdamW and RMSprop, and timm's Lamb (You et
// al., 2019) with bias correction, averaged gradients, and no trust ratio
// without weight decay, which are its defaults. timm's limit of the gradients'
// norm isn't part of the step. Thread-safe: free functions without state.
#pragma once

#include <cstdint>

#include "backends/core/optimizer/update_operation.h"

namespace convgrad {

// Pointers to one parameter's tensors; null where there are none.
struct UpdateTensors {
  const float* value;
  const float* gradient;
  const float* states[kMaxStates];
  float* new_value;
  float* new_states[kMaxStates];
  const int64_t* step;
  int64_t* new_step;
  const float* average;
  float* new_average;
};

// A range of elements.
struct ElementRange {
  int64_t begin, end;
};

// The change of a gradient before the optimizer uses it: times `scale`, limited
// to [-limit, limit], times `clip`, the factor that clips the norm. Plain data.
struct GradientRule {
  double scale = 1;
  double limit = 0;  // 0: no limit
  double clip = 1;
};

// Returns the range's part of the sum of squares of which NormOf makes the norm
// of the scaled and limited gradients, in f64.
double SquaresOf(const float* gradient, const GradientRule& rule,
                 ElementRange range);
double NormOf(double squares, const GradientRule& rule);

// Writes new values and states of the range. For LAMB it writes only states.
// Requires: *tensors.new_step counts this step, from 1, where there is one.
void RunStep(Optimizer optimizer, const ParameterSettings& settings,
             const GradientRule& rule, const UpdateTensors& tensors,
             ElementRange range);

// The squares of the norms of a parameter and of its update, whose ratio is
// LAMB's trust ratio.
struct TrustNorms {
  double value = 0;
  double update = 0;
};
// Returns the range's part of them. Requires: RunStep has written the states.
TrustNorms TrustNormsOf(const ParameterSettings& settings,
                        const UpdateTensors& tensors, ElementRange range);
// Writes LAMB's new values of the range. `norms` are those of the parameter.
void RunTrustedStep(const ParameterSettings& settings, const TrustNorms& norms,
                    const UpdateTensors& tensors, ElementRange range);

// Writes the exponential moving average of the new values: a copy of them if
// there is no average yet, else average + (1 - decay) * (value - average), as
// torch.optim.swa_utils.get_ema_multi_avg_fn has it.
void RunAverage(double decay, const UpdateTensors& tensors, ElementRange range);

}  // namespace convgrad
