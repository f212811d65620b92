// `F16Depthwise` computes depthwise convolutions of f16 activations: one filter
// per channel. CPUs without native f16 would otherwise spend more time on
// copies in f32 than on the convolution.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/core/convolution/conv_problem.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/convolutions/f16_depthwise_block.h"
#include "backends/kernels/convolutions/f16_depthwise_pass.h"

namespace convgrad {

// A convolution, prepared once and run repeatedly in items, which several
// threads may share. Results are rounded once: an output or an input's gradient
// from a sum in f32, the other gradients from sums in f64 of short sums in f32.
// Immutable; thread-safe.
//
// Layout: activations are dense, kNCX or kNXC. Weights and their gradients are
// f32, kernel, C. Buffers need no alignment and must not overlap.
class F16Depthwise {
 public:
  // An activation: f16 as an operand, f16 or f32 as a result.
  struct Operand {
    const void* data = nullptr;
    Layout layout = Layout::kNXC;
  };
  struct Result {
    void* data = nullptr;
    Layout layout = Layout::kNXC;
    DataType dtype = DataType::kF16;
  };
  struct ForwardTensors {
    Operand data;
    const float* weight;
    const float* bias;  // one per channel, or null
    Result out;
  };
  // grad_data or sums is null if it isn't requested.
  struct BackwardTensors {
    Operand grad;
    const float* weight = nullptr;  // needed for grad_data
    Result grad_data;
    Operand data;  // needed for sums
    // the weight gradient, then the bias gradient; added to
    double* sums = nullptr;
  };

  // Returns nullopt unless `problem` is ordinary, has one or two axes and as
  // many groups as input and output channels, and its rows fit a core's caches.
  // Ignores its bias and ReLU.
  static std::optional<F16Depthwise> Make(const ConvProblem& problem);

  // Return the number of independent items of each pass. The sums need all
  // items of the backward pass.
  int64_t forward_items() const { return forward_.bands() * batch_ * blocks_; }
  int64_t backward_items() const {
    return backward_.bands() * batch_ * blocks_;
  }
  // Returns the bytes of scratch that a call needs, aligned to 64 bytes.
  int64_t scratch_bytes() const;
  // Returns the number of elements of BackwardTensors::sums.
  int64_t sum_count() const { return (taps_ + 1) * channels_; }

  // Run the items [begin, end).
  void Forward(const ForwardTensors& tensors, void* scratch, int64_t begin,
               int64_t end) const;
  void Backward(const BackwardTensors& tensors, void* scratch, int64_t begin,
                int64_t end) const;

 private:
  struct Item;
  struct Scratch;

  F16Depthwise() = default;
  Item ItemAt(const f16_depthwise::Pass& pass, int64_t index) const;
  Scratch Divide(void* scratch) const;

  // The functions below work on one item.
  f16_depthwise::BlockRange RangeOf(const Item& item, Layout layout,
                                    const f16_depthwise::Range& rows,
                                    int64_t height, int64_t width) const;
  void LoadSource(const f16_depthwise::Pass& pass, const Item& item,
                  const Operand& source, const Scratch& scratch) const;
  void LoadWeight(const Item& item, const float* weight,
                  const Scratch& scratch) const;
  void RunItem(const f16_depthwise::Pass& pass, const Item& item,
               const float* start, const f16_depthwise::ResultBlock& result,
               const f16_depthwise::DataBlock& data,
               const Scratch& scratch) const;
  void AddSums(const Item& item, const Scratch& scratch, double* sums) const;

  int64_t batch_ = 0, channels_ = 0, blocks_ = 0;
  int64_t taps_ = 0, kernel_width_ = 0;
  f16_depthwise::Pass forward_, backward_;
  // Maximum number of elements in an item's arrays.
  int64_t source_ = 0, band_ = 0;
};

}  // namespace convgrad
