// Depthwise convolutions of f16 activations in channels last, one filter per
// channel. CPUs without native f16 would otherwise spend more time on copies in
// f32 than on the convolution.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/core/conv_problem.h"
#include "backends/core/half_depthwise_rows.h"

namespace convgrad {

// A convolution prepared once and run often, in items that a team of threads
// may share. Sums are kept in f32 and rounded once. Immutable and thread-safe.
//
// Activations are f16 or f32 (results only), N, spatial, C; weights and their
// gradients f32, kernel, C. Buffers need no alignment and must not overlap.
class HalfDepthwise {
 public:
  // Returns nullopt unless `problem` is ordinary, of one or two axes and with
  // as many groups as input and output channels. Its bias and ReLU are ignored.
  static std::optional<HalfDepthwise> Make(const ConvProblem& problem);

  // Number of independent items of each pass.
  int64_t forward_items() const { return chunks_ * batch_ * y_.out; }
  int64_t backward_data_items() const { return chunks_ * batch_ * y_.in; }
  int64_t backward_weight_items() const { return chunks_ * batch_ * y_.out; }

  // Write the items [begin, end) of their result, in `dtype` (f16 or f32).
  // `bias` is one f32 per channel, or null.
  void Forward(const void* data, const float* weight, const float* bias,
               DataType dtype, void* out, int64_t begin, int64_t end) const;
  void BackwardData(const float* weight, const void* grad, DataType dtype,
                    void* grad_data, int64_t begin, int64_t end) const;

  // Floats that BackwardWeight adds to: the weight's gradient, then the bias's.
  int64_t sum_count() const { return (taps() + 1) * channels_; }
  // Adds the items [begin, end) to `sums`.
  void BackwardWeight(const void* data, const void* grad, float* sums,
                      int64_t begin, int64_t end) const;

 private:
  struct Axis {
    int64_t in, out, kernel;
    half_depthwise::TapTable of_out;  // elements of the input it reads
    half_depthwise::TapTable of_in;   // elements of the output it reaches
  };
  struct Item {
    int64_t image, row;
    half_depthwise::ChannelRange channels;
  };

  HalfDepthwise() = default;
  static Axis MakeAxis(const SpatialAxis& axis);
  int64_t taps() const { return y_.kernel * x_.kernel; }
  Item ItemAt(int64_t index, int64_t rows) const;

  int64_t batch_ = 0, channels_ = 0, chunk_ = 0, chunks_ = 0;
  Axis y_, x_;
  int64_t inner_begin_ = 0, inner_end_ = 0;  // of a row of the output
};

}  // namespace convgrad
